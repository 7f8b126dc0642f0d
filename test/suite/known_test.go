package suite

import (
	"reflect"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/partition"
)

// known returns how many entries the Consumer knows, which it has no reason to tell anybody else. Nothing else happens
// meanwhile.
func known(c *redelivery.Consumer) int {
	return (*partition.Group)(reflect.ValueOf(c).Elem().FieldByName("group").UnsafePointer()).Len()
}
