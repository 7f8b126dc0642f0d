package publishing

import (
	"errors"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Encoded is a schema for payloads that are encoded already.
type Encoded struct{ Info *pulsar.SchemaInfo }

var errEncoded = errors.New("the payload is encoded already")

func (Encoded) Encode(any) ([]byte, error)          { return nil, errEncoded }
func (Encoded) Decode([]byte, any) error            { return errEncoded }
func (Encoded) Validate([]byte) error               { return nil }
func (e Encoded) GetSchemaInfo() *pulsar.SchemaInfo { return e.Info }

// SchemaOf asks the broker for the schema that a message was written with. Upstream does this only to decode a message,
// and then ends the process if it cannot read the definition. It has no public function for the schema alone, so
// SchemaOf reads private fields of upstream's message.
func SchemaOf(msg pulsar.Message) (schema pulsar.Schema, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("this version of pulsar-client-go does not show the schema of a message: %v", r)
		}
	}()
	version := msg.SchemaVersion()
	cache := field(reflect.ValueOf(unwrapped(msg)), "schemaInfoCache")
	lookup := field(field(cache, "client"), "lookupService")
	out := lookup.MethodByName("GetSchema").Call([]reflect.Value{field(cache, "topic"), reflect.ValueOf(version)})
	if err, ok := reflect.TypeAssert[error](out[1]); ok && err != nil {
		return nil, err
	}
	found := out[0].Elem()
	return Encoded{&pulsar.SchemaInfo{
		Name:       "schema",
		Type:       pulsar.SchemaType(found.FieldByName("SchemaType").Int()),
		Schema:     string(found.FieldByName("Data").Bytes()),
		Properties: found.FieldByName("Properties").Interface().(map[string]string),
	}}, nil
}

// field returns a field of the struct that v points to, exported or not.
func field(v reflect.Value, name string) reflect.Value {
	f := v.Elem().FieldByName(name)
	return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
}

// unwrapped follows fields named Message to the innermost message, which is upstream's.
func unwrapped(msg pulsar.Message) pulsar.Message {
	for {
		v := reflect.Indirect(reflect.ValueOf(msg))
		if v.Kind() != reflect.Struct {
			return msg
		}
		inner := v.FieldByName("Message")
		if !inner.IsValid() || !inner.CanInterface() {
			break
		}
		next, ok := reflect.TypeAssert[pulsar.Message](inner)
		if !ok {
			break
		}
		msg = next
	}
	return msg
}
