package testkit

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
)

// KeyReader has one pair of keys under two names. The key with the second name is lost until Found is set.
type KeyReader struct {
	public, private []byte
	Found           *atomic.Bool  // the test sets it so that the lost key can be read
	Asked           *atomic.Int32 // how often a client asked for the lost key
}

// NewKeyReader returns the keys, which are the same for the whole process. The one named LostKeyName is lost.
func NewKeyReader() KeyReader {
	k := keys()
	k.Found, k.Asked = new(atomic.Bool), new(atomic.Int32)
	return k
}

// keys makes the keys once, when a test needs them, since that takes a while.
var keys = sync.OnceValue(func() KeyReader {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		panic(err)
	}
	return KeyReader{
		public:  pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		private: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
	}
})

// KeyName and LostKeyName are the names of the two keys.
const KeyName, LostKeyName = "key", "lost key"

var errLostKey = errors.New("the key is lost")

// PublicKey implements crypto.KeyReader.
func (k KeyReader) PublicKey(name string, meta map[string]string) (*crypto.EncryptionKeyInfo, error) {
	return crypto.NewEncryptionKeyInfo(name, k.public, meta), nil
}

// PrivateKey implements crypto.KeyReader. It returns an error for the lost key until Found is set.
func (k KeyReader) PrivateKey(name string, meta map[string]string) (*crypto.EncryptionKeyInfo, error) {
	if name == LostKeyName {
		k.Asked.Add(1)
		if !k.Found.Load() {
			return nil, errLostKey
		}
	}
	return crypto.NewEncryptionKeyInfo(name, k.private, meta), nil
}

// Encryption makes a producer encrypt with a key.
func (k KeyReader) Encryption(name string) *pulsar.ProducerEncryptionInfo {
	return &pulsar.ProducerEncryptionInfo{KeyReader: k, Keys: []string{name}}
}

// Decryption makes a consumer decrypt with both keys.
func (k KeyReader) Decryption() *pulsar.MessageDecryptionInfo {
	return &pulsar.MessageDecryptionInfo{KeyReader: k}
}

// SendAmong publishes "0" … "6"; "3" is encrypted with the lost key.
func (b *Broker) SendAmong(k KeyReader, topic string) {
	b.T.Helper()
	for i := range 7 {
		opts := pulsar.ProducerOptions{Topic: topic, DisableBatching: true, Encryption: k.Encryption(KeyName)}
		if i == 3 {
			opts.Encryption = k.Encryption(LostKeyName)
		}
		b.Publish(opts, &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(i))})
	}
}
