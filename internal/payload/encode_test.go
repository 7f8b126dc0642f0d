package payload

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

func TestUneditedAvroIsEncodedToTheSameBytes(t *testing.T) {
	before := "\x54\x02\x04hi\x00\x02\x01ab\x02\x04" + strings.Repeat("\x3f", 16) +
		"\x00\x02\x02k\x02\x06\x00\x02\x02ef\x02\x02\x19"
	schema := &admin.Schema{Type: "AVRO", Data: everything}
	value, ok := Decode(schema, []byte(before))
	require.True(t, ok)
	text := string(value.(json.RawMessage))
	got, err := Encode(schema, []byte(before), text)
	require.NoError(t, err)
	require.Equal(t, before, string(got))
	got, err = Encode(schema, []byte(before), strings.Replace(text, `"i":42`, `"i":43`, 1))
	require.NoError(t, err)
	require.Equal(t, "\x56"+before[1:], string(got))
	for change, want := range map[string]string{
		`"i":"many"`: `i is "many", want int`, `"i":2147483648`: "i is 2147483648, want int",
		`"i":1.5`: "i is 1.5, want int", `"j":42`: "i is missing", `"i":42,"new":1`: "new is not in the schema", `"i":42}`: "the text is not JSON",
	} {
		_, err := Encode(schema, []byte(before), strings.Replace(text, `"i":42`, change, 1))
		assert.ErrorContains(t, err, want)
	}
	for old, new := range map[string]string{`"e":"B"`: `"e":"C"`, `[97,98]`: `[97]`, `"b":"AQ=="`: `"b":"?"`,
		`"k":3`: `"k":"3"`, `"d":"1/4"`: `"d":"x"`, `"1970-01`: `"1970/01`, `"s":"hi"`: `"s":3`} {
		require.Contains(t, text, old)
		_, err := Encode(schema, []byte(before), strings.Replace(text, old, new, 1))
		assert.Error(t, err, new)
	}
}

func TestValueThatFitsTwoTypesOfAUnionIsRefused(t *testing.T) {
	schema := &admin.Schema{Type: "AVRO", Data: `["int","long"]`}
	_, err := Encode(schema, []byte("\x02\x06"), "4")
	require.EqualError(t, err, "the value fits two types of its union, int and long")
	got, err := Encode(schema, []byte("\x02\x06"), "2147483648")
	require.NoError(t, err)
	require.Equal(t, byte(2), got[0])
}

func TestEditedPayloadKeepsItsForm(t *testing.T) {
	form := &admin.Schema{Type: "JSON", Data: `{"type":"record","name":"o","fields":[{"name":"n","type":"int"},
		{"name":"s","type":["null","string"],"default":null}]}`}
	for _, c := range []struct {
		schema             *admin.Schema
		before, text, want string // ! marks the text of an error
	}{
		{nil, "hello", "bye\n", "bye\n"},
		{nil, "12", "x", "x"},
		{nil, `{"n":1}`, "{\n \"n\": 1.50\n}", `{"n":1.50}`},
		{nil, `{"n":1}`, "{", "!the text is not JSON"},
		{nil, "\xff", "x", "!the payload is neither text, JSON nor Avro"},
		{nil, "x", "\xff", "!the text is not UTF-8"},
		{&admin.Schema{Type: "STRING"}, "a", "b", "b"},
		{&admin.Schema{Type: "INT32"}, "abcd", "b", "!a payload of schema INT32 cannot be edited"},
		{form, `{"n":1}`, `{"n":2,"s":"x"}`, `{"n":2,"s":"x"}`},
		{form, `{"n":1}`, `{"n":"2"}`, `!n is "2", want int`},
		{form, `{"n":1}`, `{"m":1}`, "!n is missing"},
		{form, `{"m":1}`, `{"m":2}`, `{"m":2}`}, // the previous payload did not match either
	} {
		got, err := Encode(c.schema, []byte(c.before), c.text)
		if want, fails := strings.CutPrefix(c.want, "!"); fails {
			assert.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, c.want, string(got))
	}
}

// A schema of one line, which any client may have registered, cannot make encoding take long.
func TestEncodingWithAHostileSchemaIsAnError(t *testing.T) {
	a := `{"type":"record","name":"a","fields":[{"name":"x","type":["null","a",{"type":"record","name":"b","fields":[
		{"name":"x","type":["null","a","b"]}]}]}]}`
	text := strings.Repeat(`{"x":`, 400) + "null" + strings.Repeat("}", 400)
	_, err := encodeAvro(a, text)
	require.Error(t, err)
	_, err = encodeAvro(`{"type":"record","name":"r","fields":[{"name":"a","type":"r"}]}`, text)
	require.Error(t, err)
}
