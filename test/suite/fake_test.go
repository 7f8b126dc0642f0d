package suite

import (
	"github.com/apache/pulsar-client-go/pulsar"
)

// foreignID is a message id of somebody's own.
type foreignID struct{ pulsar.MessageID }
