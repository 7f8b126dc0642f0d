package upstream

import (
	"reflect"
	"unsafe"

	"github.com/apache/pulsar-client-go/pulsar"
)

// OnClientClose calls closed when the client of consumer is closed, unless stop was called before. No public method
// shows whether a client is closed, and a closed client can even subscribe. But Close of a client closes the consumers,
// producers and readers in a private list, so OnClientClose adds an entry to this list. OnClientClose does nothing if
// consumer is not pulsar-client-go's own, or if pulsar-client-go has no such list any more.
func OnClientClose(consumer pulsar.Consumer, closed func()) (stop func()) {
	defer func() {
		if recover() != nil {
			stop = func() {}
		}
	}()
	handlers := private(private(reflect.ValueOf(consumer), "client"), "handlers").Addr()
	entry := []reflect.Value{reflect.ValueOf(&closable{closed})}
	handlers.MethodByName("Add").Call(entry)
	return func() { handlers.MethodByName("Del").Call(entry) }
}

// closable is an entry of the list. Entries are pointers, since the list is a map with entries as keys.
type closable struct{ closed func() }

func (c *closable) Close() { c.closed() }

// TopicOf returns the topic of a consumer of one topic, which no public method shows once the consumer is closed. It
// returns "" if consumer is not pulsar-client-go's own.
func TopicOf(consumer pulsar.Consumer) (topic string) {
	defer func() { _ = recover() }()
	return private(reflect.ValueOf(consumer), "topic").String()
}

// private returns a field of the struct that v points to, exported or not.
func private(v reflect.Value, name string) reflect.Value {
	f := v.Elem().FieldByName(name)
	return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
}
