package ui

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"unicode/utf8"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/payload"
)

// laidOut is a payload in a form for people.
type laidOut struct {
	form   string // JSON, Avro, text, bytes, hidden …
	text   string // in that form; may have characters that a page cannot show
	more   int    // bytes that text leaves out
	noEdit string // why the payload cannot be edited; "" if it can be
}

// layOut returns a letter's payload in a form for people.
func (h *Handler) layOut(ctx context.Context, x *letterIndex, l *deadletter.Letter) laidOut {
	switch {
	case h.o.HidePayloads:
		return laidOut{form: "hidden", noEdit: "is hidden"}
	case l.Null:
		return laidOut{form: "null value", noEdit: "is a null value"}
	case l.Encrypted:
		return laidOut{form: "encrypted", noEdit: "is encrypted"}
	case l.Size == 0:
		return laidOut{form: "empty", noEdit: "is empty"}
	}
	schema, err := x.schemas.Find(ctx, l.Schema)
	v := layOut(schema, l.Payload)
	if err != nil {
		v.form += ", without its schema: " + errorText(err)
		v.noEdit = "has a schema that is not known now"
	}
	return v
}

func layOut(schema *admin.Schema, data []byte) (v laidOut) {
	value, ok := payload.Decode(schema, data)
	if !ok {
		v.form, v.noEdit = "bytes", "is neither text, JSON nor Avro"
		if schema != nil {
			v.form = "bytes that are not of the schema " + show(schema.Type)
		}
		const shown = 4 << 10
		v.text, v.more = hex.Dump(data[:min(len(data), shown)]), max(len(data)-shown, 0)
		return v
	}
	switch value := value.(type) {
	case string:
		v.form, v.text = "text", value
	case json.RawMessage:
		v.form = "JSON"
		if schema != nil && schema.Type == "AVRO" {
			v.form = "Avro, as JSON"
		}
		var out bytes.Buffer
		if len(value) <= 1<<20 && json.Indent(&out, value, "", "  ") == nil && out.Len() <= 8<<20 {
			// without the limits, indenting could make a payload many times longer
			value = out.Bytes()
		}
		v.text = string(value)
	}
	switch {
	case len(v.text) > maxPayload:
		v.noEdit = "is too large for a page"
	case showLines(v.text) != v.text:
		v.noEdit = "has characters that a page cannot hold"
	default:
		if _, err := payload.Encode(schema, data, v.text); err != nil {
			v.noEdit = "cannot be encoded again: " + errorText(err)
		}
	}
	return v
}

// cutBytes returns at most n bytes, without half a character.
func cutBytes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
