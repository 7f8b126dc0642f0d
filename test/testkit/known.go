package testkit

import (
	"reflect"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/partition"
)

// KnownEntries returns how many entries the Consumer knows. It reads an unexported field, since no exported method
// returns this number. No other goroutine may use the Consumer during the call.
func KnownEntries(c *redelivery.Consumer) int {
	return (*partition.Group)(reflect.ValueOf(c).Elem().FieldByName("group").UnsafePointer()).Len()
}
