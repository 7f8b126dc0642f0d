// Package payload decodes the payloads of messages for people, and encodes the edited ones: command redelivery and
// package ui show them.
package payload

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// Decode returns a payload as a value that JSON can represent: Avro by the schema, JSON as it is, other text as a
// string. ok is false for bytes that are none of these. s is nil if there is no schema.
func Decode(s *admin.Schema, data []byte) (value any, ok bool) {
	switch {
	case s != nil && s.Type == "AVRO":
		value, err := decodeAvro(s.Data, data)
		return value, err == nil
	case !utf8.Valid(data): // json.Valid accepts invalid UTF-8
		return nil, false
	case json.Valid(data):
		return json.RawMessage(data), true
	}
	return string(data), true
}
