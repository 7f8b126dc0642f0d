package suite

import (
	"reflect"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// known returns how many entries the Consumer's ledger knows, which the Consumer has no reason to tell anybody else.
func known(c *redelivery.Consumer) int {
	return (*ledger.Ledger)(reflect.ValueOf(c).Elem().FieldByName("ledger").UnsafePointer()).Len()
}
