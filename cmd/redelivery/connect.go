package main

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// connection is where the broker is and who we are. The names are those of Pulsar's own tools.
type connection struct {
	url, adminURL           string
	authPlugin, authParams  string
	trustCert               string
	cert, key               string // of the client; only client.conf names them
	insecure, verifyHost    bool
	keyName, public, secret string // of encrypted letters
}

func (c *connection) flags(set *flag.FlagSet) {
	set.StringVar(&c.url, "url", "", "")
	set.StringVar(&c.adminURL, "admin-url", "", "")
	set.StringVar(&c.authPlugin, "auth-plugin", "", "")
	set.StringVar(&c.authParams, "auth-params", "", "")
	set.StringVar(&c.trustCert, "tls-trust-cert-path", "", "")
	set.BoolVar(&c.insecure, "tls-allow-insecure", false, "")
	set.BoolVar(&c.verifyHost, "tls-enable-hostname-verification", false, "")
	set.StringVar(&c.keyName, "encryption-key-name", "", "")
	set.StringVar(&c.public, "encryption-public-key", "", "")
	set.StringVar(&c.secret, "encryption-private-key", "", "")
}

// complete takes what no flag says from the environment, then from client.conf, then from Pulsar's defaults.
func (c *connection) complete() error {
	path, named := os.LookupEnv("PULSAR_CLIENT_CONF")
	if home := os.Getenv("PULSAR_HOME"); !named && home != "" {
		path = filepath.Join(home, "conf", "client.conf")
	}
	conf := map[string]string{}
	if path != "" {
		var err error
		if conf, err = readProperties(path); err != nil && (named || !errors.Is(err, os.ErrNotExist)) {
			return err
		}
	}
	var err error
	if c.url, err = brokers.first(setting{"-url", c.url}, setting{"PULSAR_URL", os.Getenv("PULSAR_URL")},
		setting{"brokerServiceUrl of " + path, conf["brokerServiceUrl"]}, setting{"", "pulsar://localhost:6650"}); err != nil {
		return err
	}
	if c.adminURL, err = admins.first(setting{"-admin-url", c.adminURL}, setting{"PULSAR_ADMIN_URL", os.Getenv("PULSAR_ADMIN_URL")},
		setting{"webServiceUrl of " + path, conf["webServiceUrl"]}, setting{"", "http://localhost:8080"}); err != nil {
		return err
	}
	c.authPlugin = cmp.Or(c.authPlugin, conf["authPlugin"])
	c.authParams = cmp.Or(c.authParams, conf["authParams"])
	c.trustCert = cmp.Or(c.trustCert, conf["tlsTrustCertsFilePath"])
	c.cert, c.key = conf["tlsCertificateFilePath"], conf["tlsKeyFilePath"]
	c.insecure = c.insecure || conf["tlsAllowInsecureConnection"] == "true"
	c.verifyHost = c.verifyHost || conf["tlsEnableHostnameVerification"] == "true"
	return nil
}

// readProperties reads a file of lines such as name=value.
func readProperties(path string) (map[string]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	props := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		name, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if ok && !strings.HasPrefix(name, "#") {
			props[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return props, lines.Err()
}

// authentication takes parameters as Pulsar's tools do: upstream takes JSON only.
func authentication(plugin, params string) (pulsar.Authentication, error) {
	values := map[string]string{}
	switch {
	case strings.HasPrefix(params, "{"):
		if err := json.Unmarshal([]byte(params), &values); err != nil {
			return nil, errors.New("-auth-params is no JSON object of strings") // the error would quote a secret
		}
	case strings.HasSuffix(strings.ToLower(plugin), "token"):
		if file, ok := strings.CutPrefix(params, "file://"); ok {
			values["file"] = file
		} else {
			values["token"] = strings.TrimPrefix(params, "token:")
		}
	case strings.HasSuffix(strings.ToLower(plugin), "basic"):
		values["username"], values["password"], _ = strings.Cut(params, ":")
	default:
		for pair := range strings.SplitSeq(params, ",") {
			name, value, _ := strings.Cut(pair, ":")
			values[name] = value
		}
	}
	values["username"] = cmp.Or(values["username"], values["userId"]) // Java's name
	data, _ := json.Marshal(values)                                   // cannot fail
	return pulsar.NewAuthentication(plugin, string(data))
}

// provider is what upstream's authentication can do for the admin API.
type provider interface {
	http.RoundTripper
	Init() error
	GetTLSCertificate() (*tls.Certificate, error)
	WithTransport(http.RoundTripper) error
}

// connect returns a client of the broker and one of its admin API.
func (c *connection) connect(log *slog.Logger) (pulsar.Client, admin.API, error) {
	api := admin.API{URL: c.adminURL}
	config := &tls.Config{InsecureSkipVerify: c.insecure} //nolint:gosec // as the user wants it
	if c.trustCert != "" {
		pem, err := os.ReadFile(c.trustCert)
		if err != nil {
			return nil, api, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, api, fmt.Errorf("%s has no certificate", c.trustCert)
		}
	}
	for _, path := range []string{c.public, c.secret} { // upstream looks when a letter is encrypted
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, api, err
		}
		if block, _ := pem.Decode(text); block == nil {
			return nil, api, fmt.Errorf("%s has no key", path)
		}
	}
	o := pulsar.ClientOptions{URL: c.url, Logger: plog.NewLoggerWithSlog(log), MetricsRegisterer: prometheus.NewRegistry(),
		TLSTrustCertsFilePath: c.trustCert, TLSAllowInsecureConnection: c.insecure, TLSValidateHostname: c.verifyHost,
		TLSCertificateFile: c.cert, TLSKeyFilePath: c.key}
	var transport http.RoundTripper = &http.Transport{TLSClientConfig: config, Proxy: http.ProxyFromEnvironment}
	if c.cert != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, api, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if c.authPlugin != "" {
		auth, err := authentication(c.authPlugin, c.authParams)
		if err != nil {
			return nil, api, err
		}
		o.Authentication = auth
		if p, ok := auth.(provider); ok {
			if err := p.Init(); err != nil {
				return nil, api, fmt.Errorf("-auth-plugin %s: %w", c.authPlugin, err)
			}
			if pair, err := p.GetTLSCertificate(); err == nil && pair != nil {
				config.Certificates = []tls.Certificate{*pair}
			}
			if err := p.WithTransport(transport); err != nil {
				return nil, api, err
			}
			transport = p
		}
	}
	api.Client = &http.Client{Transport: transport}
	client, err := pulsar.NewClient(o)
	return client, api, err
}

// encryption are the keys of encrypted letters, if there are any.
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
