package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hamba/avro/v2"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// Encode returns the payload for an edited text. before is the payload before the edit, which Decode showed as text.
// The result has the same form: Avro by the schema, JSON, or any text. If the old payload matches its JSON schema, the
// edited text must match it too. An error names the field.
func Encode(s *admin.Schema, before []byte, text string) ([]byte, error) {
	switch value, ok := Decode(s, before); {
	case !ok:
		return nil, errors.New("the payload is neither text, JSON nor Avro")
	case !utf8.ValidString(text):
		return nil, errors.New("the text is not UTF-8")
	case s != nil && s.Type == "AVRO":
		return encodeAvro(s.Data, text)
	case s != nil && s.Type != "JSON" && s.Type != "STRING" && s.Type != "NONE" && s.Type != "BYTES":
		return nil, fmt.Errorf("a payload of schema %s cannot be edited", s.Type)
	default:
		_, isJSON := value.(json.RawMessage)
		// a JSON scalar, such as 12, may be meant as plain text
		isText := !isJSON || !strings.ContainsAny(string(before[:1]), "{[")
		if isText && (s == nil || s.Type != "JSON") {
			return []byte(text), nil
		}
		return encodeJSON(s, string(before), text)
	}
}

// encodeJSON returns a JSON text without spaces.
func encodeJSON(s *admin.Schema, before, text string) ([]byte, error) {
	var out bytes.Buffer
	if err := json.Compact(&out, []byte(text)); err != nil {
		return nil, fmt.Errorf("the text is not JSON: %w", err)
	}
	if s == nil || s.Type != "JSON" {
		return out.Bytes(), nil
	}
	schema, err := parseAvro(s.Data)
	// A schema is ignored if it cannot be parsed, or if the payload before the edit does not match it.
	if err == nil && checkJSON(schema, before) == nil {
		return out.Bytes(), checkJSON(schema, text)
	}
	return out.Bytes(), nil
}

func checkJSON(schema avro.Schema, text string) error {
	value, err := parse(text)
	if err != nil {
		return err
	}
	w := newWriter()
	w.isJSON = true
	return w.value(schema, value, "", 0)
}

// encodeAvro is the reverse of decodeAvro.
func encodeAvro(definition, text string) ([]byte, error) {
	schema, err := parseAvro(definition)
	if err != nil {
		return nil, err
	}
	value, err := parse(text)
	if err != nil {
		return nil, err
	}
	w := newWriter()
	if err := w.value(schema, value, "", 0); err != nil {
		return nil, err
	}
	return w.Buffer(), w.Error
}

// parse returns a JSON value, and keeps numbers as they are written.
func parse(text string) (value any, err error) {
	if !json.Valid([]byte(text)) { // a Decoder would ignore text after the value
		return nil, errors.New("the text is not JSON")
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return value, d.Decode(&value)
}
