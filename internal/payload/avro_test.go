package payload

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const everything = `{"type":"record","name":"all","namespace":"n","fields":[
	{"name":"i","type":"int"}, {"name":"s","type":["null","string"]}, {"name":"none","type":["null","string"]}, {"name":"b","type":"bytes"},
	{"name":"f","type":{"type":"fixed","name":"f","size":2}}, {"name":"e","type":{"type":"enum","name":"e","symbols":["A","B"]}},
	{"name":"l","type":{"type":"array","items":"double"}}, {"name":"m","type":{"type":"map","values":["null","long","all"]}},
	{"name":"t","type":{"type":"long","logicalType":"timestamp-millis"}}, {"name":"u","type":["null","f"]},
	{"name":"d","type":["null",{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}]}]}`

func TestEveryAvroTypeIsDecoded(t *testing.T) {
	payload := "\x54\x02\x04hi\x00\x02\x01ab\x02\x04" + strings.Repeat("\x00", 16) +
		"\x00\x02\x02k\x02\x06\x00\x02\x02ef\x02\x02\x19"
	got, err := decodeAvro(everything, []byte(payload))
	require.NoError(t, err)
	require.JSONEq(t, `{"i":42, "s":"hi", "none":null, "b":"AQ==", "f":[97,98], "e":"B", "l":[0,0], "m":{"k":3},
		"t":"1970-01-01T00:00:00.001Z", "u":[101,102], "d":"1/4"}`, string(got))
	_, err = decodeAvro(everything, []byte(payload[:len(payload)-1]))
	require.Error(t, err)
}

func TestNameInAnAvroSchemaIsNotOfAnotherSchema(t *testing.T) {
	_, err := decodeAvro(`{"type":"record","name":"item","namespace":"shop","fields":[{"name":"n","type":"int"}]}`, []byte{2})
	require.NoError(t, err)
	other := `{"type":"record","name":"order","fields":[{"name":"i","type":"shop.item"}]}`
	_, err = decodeAvro(other, []byte{2})
	require.ErrorContains(t, err, "shop.item")
	_, err = encodeAvro(other, `{"i":{"n":1}}`)
	require.ErrorContains(t, err, "shop.item")
}

// Some of these payloads would take much memory, or end the process.
func TestHostileAvroIsAnError(t *testing.T) {
	long := []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40}
	for name, c := range map[string]struct {
		schema  string
		payload []byte
	}{
		"array":          {`{"type":"array","items":"int"}`, long},
		"array of nulls": {`{"type":"array","items":"null"}`, long},
		"negative array": {`{"type":"array","items":"int"}`,
			[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0}},
		"map":          {`{"type":"map","values":"null"}`, long},
		"bytes":        {`"bytes"`, long},
		"fixed":        {`{"type":"fixed","name":"f","size":1000000000000}`, long},
		"other branch": {`["int",{"type":"fixed","name":"f","size":1000000000000}]`, []byte{2, 2}},
		"no branch":    {`["int"]`, []byte{2}},
		"decimal": {`{"type":"bytes","logicalType":"decimal","precision":2000000000,"scale":2000000000}`,
			[]byte{2, 1}},
		"recursive": {`{"type":"record","name":"r","fields":[{"name":"a","type":["null","r"]}]}`,
			bytes.Repeat([]byte{2}, 3_000_000)},
		"without end": {`{"type":"record","name":"r","fields":[{"name":"a","type":"r"}]}`, []byte{2}},
		"no schema":   {`{"type":`, []byte{2}},
	} {
		_, err := decodeAvro(c.schema, c.payload)
		assert.Error(t, err, name)
	}
}
