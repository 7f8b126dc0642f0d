package testkit

import (
	"reflect"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/partition"
)

// KnownEntries returns how many entries the Consumer knows, which has no exported method. No goroutine may use the
// Consumer meanwhile.
func KnownEntries(c *redelivery.Consumer) int {
	return (*partition.Group)(reflect.ValueOf(c).Elem().FieldByName("group").UnsafePointer()).Len()
}
