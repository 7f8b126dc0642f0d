package upstream

import (
	"reflect"
	"unsafe"

	"github.com/apache/pulsar-client-go/pulsar"
)

// OnClientClose calls closed when the client of consumer is closed, until stop is called. The Close of
// pulsar-client-go's client closes the consumers, producers and readers in a private list, and no public method shows
// whether the client is closed: it even subscribes afterwards. So OnClientClose adds an entry to this list. It does
// nothing if consumer is not pulsar-client-go's own, or if pulsar-client-go has no such list any more.
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

// closable is an entry of the list. It is a pointer, since the list is a map.
type closable struct{ closed func() }

func (c *closable) Close() { c.closed() }

// private returns a field of the struct that v points to, exported or not.
func private(v reflect.Value, name string) reflect.Value {
	f := v.Elem().FieldByName(name)
	return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
}
