package main

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
)

// checkKeyFlags refuses flags that have no effect without another.
func (c *connection) checkKeyFlags() error {
	switch {
	case c.public != "" && (c.secret == "" || c.keyName == ""):
		return errors.New("-encryption-public-key is given, want -encryption-private-key and -encryption-key-name too")
	case c.keyName != "" && c.secret == "":
		return errors.New("-encryption-key-name is given, want -encryption-private-key too")
	}
	return nil
}

// checkKeys returns an error if a file has no key in the form that upstream reads. Upstream reads the files only when a
// letter is encrypted. If upstream cannot read a file then, the letter seems to be encrypted with another key.
func (c *connection) checkKeys() error {
	if err := c.checkKeyFlags(); err != nil {
		return err
	}
	err := checkKey(c.public, "an RSA public key, as openssl rsa -pubout writes it", func(key []byte) bool {
		public, err := x509.ParsePKIXPublicKey(key)
		_, is := public.(*rsa.PublicKey)
		return err == nil && is
	})
	if err != nil {
		return err
	}
	return checkKey(c.secret, "an RSA private key in PKCS #1, as openssl rsa -traditional writes it",
		func(key []byte) bool {
			_, err := x509.ParsePKCS1PrivateKey(key)
			return err == nil
		})
}

func checkKey(path, want string, valid func(key []byte) bool) error {
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if block, _ := pem.Decode(text); block == nil || !valid(block.Bytes) {
		return fmt.Errorf("%s has no key that can be used, want %s", path, want)
	}
	return nil
}

// encryption returns the keys of encrypted letters, if they are given.
func (c *connection) encryption() (*pulsar.ProducerEncryptionInfo, *pulsar.MessageDecryptionInfo) {
	if c.secret == "" {
		return nil, nil
	}
	reader := crypto.NewFileKeyReader(c.public, c.secret)
	decryption := &pulsar.MessageDecryptionInfo{KeyReader: reader}
	if c.public == "" {
		return nil, decryption
	}
	return &pulsar.ProducerEncryptionInfo{KeyReader: reader, Keys: []string{c.keyName}}, decryption
}
