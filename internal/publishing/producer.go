package publishing

import (
	"reflect"
	"unsafe"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Large is the payload beyond which a batch may have no room for a message.
const Large = 1 << 20

// InitialSubscription has the broker create a subscription at the beginning of the topic whenever a producer connects and there is none.
// Nothing else comes before a producer that connects again by itself, and by that creates a topic that was deleted meanwhile. Upstream
// sets this option for its own dead letters; others cannot. It reports false if upstream has it no longer.
func InitialSubscription(p *pulsar.ProducerOptions, name string) bool {
	field := reflect.ValueOf(p).Elem().FieldByName("initialSubscriptionName")
	if !field.IsValid() || field.Kind() != reflect.String {
		return false
	}
	*(*string)(unsafe.Pointer(field.UnsafeAddr())) = name
	return true
}
