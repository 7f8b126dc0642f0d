package suite

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
	"github.com/stretchr/testify/require"
)

// Values with a schema.

type order struct {
	ID string `json:"id" avro:"id"`
}

const orderDefinition = `{"type": "record", "name": "order", "fields": [{"name": "id", "type": "string"}]}`

var (
	jsonSchema = pulsar.NewJSONSchema(orderDefinition, nil)
	avroSchema = pulsar.NewAvroSchema(orderDefinition, nil)
)

func orderMessage(id string) *pulsar.ProducerMessage {
	return &pulsar.ProducerMessage{Value: &order{id}}
}

func orderID(t *testing.T, msg pulsar.Message) string {
	t.Helper()
	var o order
	require.NoError(t, msg.GetSchemaValue(&o))
	return o.ID
}

// Messages in chunks.

func chunking(o *pulsar.ProducerOptions) {
	o.EnableChunking, o.DisableBatching, o.ChunkMaxMessageSize = true, true, 1000
}

var padding = strings.Repeat("x", 4000)

func large(payload string) *pulsar.ProducerMessage {
	return &pulsar.ProducerMessage{Payload: []byte(payload + padding)}
}

func small(t *testing.T, msg pulsar.Message) string {
	t.Helper()
	text, ok := strings.CutSuffix(string(msg.Payload()), padding)
	require.True(t, ok)
	return text
}

// keyReader has one pair of keys under two names, of which one is lost until it is found.
type keyReader struct {
	public, private []byte
	found           *atomic.Bool
	asked           *atomic.Int32 // how often it was asked for the lost one
}

var keys = newKeys()

func newKeys() keyReader {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		panic(err)
	}
	return keyReader{
		public:  pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		private: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		found:   new(atomic.Bool),
		asked:   new(atomic.Int32),
	}
}

const keyName, lostKeyName = "key", "lost key"

var errLostKey = errors.New("the key is lost")

func (k keyReader) PublicKey(name string, meta map[string]string) (*crypto.EncryptionKeyInfo, error) {
	return crypto.NewEncryptionKeyInfo(name, k.public, meta), nil
}

func (k keyReader) PrivateKey(name string, meta map[string]string) (*crypto.EncryptionKeyInfo, error) {
	if name == lostKeyName {
		k.asked.Add(1)
		if !k.found.Load() {
			return nil, errLostKey
		}
	}
	return crypto.NewEncryptionKeyInfo(name, k.private, meta), nil
}

func (k keyReader) encryption(name string) *pulsar.ProducerEncryptionInfo {
	return &pulsar.ProducerEncryptionInfo{KeyReader: k, Keys: []string{name}}
}

func (k keyReader) decryption() *pulsar.MessageDecryptionInfo {
	return &pulsar.MessageDecryptionInfo{KeyReader: k}
}

// witness is an interceptor that wants to see the Consumer that Subscribe returned, and what the application sees of
// it.
type witness struct {
	mu                                 sync.Mutex
	consumers                          map[pulsar.Consumer]bool
	consumed, acked, requested, closed int
}

func (w *witness) BeforeConsume(cm pulsar.ConsumerMessage) {
	w.see(cm.Consumer, func() { w.consumed++ })
}

func (w *witness) OnAcknowledge(c pulsar.Consumer, _ pulsar.MessageID) {
	w.see(c, func() { w.acked++ })
}

func (w *witness) OnNegativeAcksSend(c pulsar.Consumer, ids []pulsar.MessageID) {
	w.see(c, func() { w.requested += len(ids) })
}

func (w *witness) OnConsumerClose(c pulsar.Consumer, _ error) {
	w.see(c, func() { w.closed++ })
}

func (w *witness) see(c pulsar.Consumer, what func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.consumers == nil {
		w.consumers = map[pulsar.Consumer]bool{}
	}
	w.consumers[c] = true
	what()
}

// seen returns the consumers that the interceptor was called with, and how often by consuming, acknowledging and closing.
func (w *witness) seen() (consumers []pulsar.Consumer, consumed, acked, closed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.consumers)), w.consumed, w.acked, w.closed
}
