package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// connection has the addresses of the broker and of its admin API, and the client's credentials. The flags have the
// same names as in Pulsar's own tools.
type connection struct {
	url, adminURL           string
	authPlugin, authParams  string
	trustCert               string
	cert, key               string // files of the client's certificate and key; set only by client.conf
	insecure, verifyHost    bool
	tls                     *tls.Config // set by connect, for the broker and the admin API
	anyHost                 bool        // client.conf allows a certificate for another host
	adminAlone              bool        // the command needs only the admin API, not the broker
	keyName, public, secret string      // for encrypted letters: the name of the keys and their files
	talkative               bool        // the client logs to stderr
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
	set.BoolVar(&c.talkative, "v", false, "")
}

// open completes the unset flags and connects. The caller closes the client.
func (c *connection) open(ctx context.Context, stderr io.Writer) (pulsar.Client, admin.API, error) {
	if err := c.complete(); err != nil {
		return nil, admin.API{}, err
	}
	if err := c.choose(ctx); err != nil {
		return nil, admin.API{}, err
	}
	return c.connect(c.logger(stderr))
}

// logger returns a logger that writes to stderr with -v, and discards everything without it.
func (c *connection) logger(stderr io.Writer) *slog.Logger {
	if c.talkative {
		return slog.New(slog.NewTextHandler(stderr, nil))
	}
	return slog.New(slog.DiscardHandler)
}

// complete takes the values of unset flags from the environment, then from client.conf, then from Pulsar's defaults.
func (c *connection) complete() error {
	path, named := os.LookupEnv("PULSAR_CLIENT_CONF")
	if home := os.Getenv("PULSAR_HOME"); !named && home != "" {
		path = filepath.Join(home, "conf", "client.conf")
	}
	conf := map[string]string{}
	if path != "" {
		var err error
		conf, err = readProperties(path)
		if err != nil && (named || !errors.Is(err, os.ErrNotExist)) {
			return err
		}
	}
	if err := checkNames(path, conf); err != nil {
		return err
	}
	urls := []setting{{"-url", c.url}, {"PULSAR_URL", os.Getenv("PULSAR_URL")},
		{"brokerServiceUrl of " + path, conf["brokerServiceUrl"]}}
	adminURLs := []setting{{"-admin-url", c.adminURL}, {"PULSAR_ADMIN_URL", os.Getenv("PULSAR_ADMIN_URL")},
		{"webServiceUrl of " + path, conf["webServiceUrl"]}}
	var err error
	c.url, err = brokers.first(append(urls, setting{"", "pulsar://localhost:6650"})...)
	if err != nil {
		return err
	}
	c.adminURL, err = admins.first(append(adminURLs, setting{"", "http://localhost:8080"})...)
	if err != nil {
		return err
	}
	// If the user gives only one address, and it is another computer's, the other address is required: its default,
	// this computer, would be another cluster.
	switch {
	case missing(adminURLs) && !brokers.local(c.url):
		return errUsage{fmt.Errorf("the broker is %s and its admin API is not given, want -admin-url, "+
			"PULSAR_ADMIN_URL or webServiceUrl", c.url)}
	case missing(urls) && !admins.local(c.adminURL) && !c.adminAlone:
		return errUsage{fmt.Errorf("the admin API is %s and its broker is not given, want -url, PULSAR_URL or "+
			"brokerServiceUrl", c.adminURL)}
	}
	c.authPlugin = cmp.Or(c.authPlugin, conf["authPlugin"])
	c.authParams = cmp.Or(c.authParams, conf["authParams"])
	c.trustCert = cmp.Or(c.trustCert, conf["tlsTrustCertsFilePath"])
	c.cert, c.key = conf["tlsCertificateFilePath"], conf["tlsKeyFilePath"]
	flags := map[string]string{}
	for _, name := range []string{"tlsAllowInsecureConnection", "tlsEnableHostnameVerification", "useKeyStoreTls"} {
		flags[name] = strings.ToLower(conf[name])
		if !slices.Contains([]string{"", "true", "false"}, flags[name]) {
			return fmt.Errorf("%s of %s is %q, want true or false", name, path, conf[name])
		}
	}
	if flags["useKeyStoreTls"] == "true" || conf["proxyServiceUrl"] != "" {
		return fmt.Errorf("%s has useKeyStoreTls or proxyServiceUrl, which are not supported", path)
	}
	c.insecure = c.insecure || flags["tlsAllowInsecureConnection"] == "true"
	c.anyHost = !c.verifyHost && flags["tlsEnableHostnameVerification"] == "false"
	c.verifyHost = c.verifyHost || flags["tlsEnableHostnameVerification"] == "true"
	return nil
}

// confNames are the names in client.conf that complete reads.
var confNames = []string{"brokerServiceUrl", "webServiceUrl", "authPlugin", "authParams", "tlsTrustCertsFilePath",
	"tlsCertificateFilePath", "tlsKeyFilePath",
	"tlsAllowInsecureConnection", "tlsEnableHostnameVerification", "useKeyStoreTls", "proxyServiceUrl"}

// checkNames returns an error if a name in client.conf differs from one of confNames only in case: complete would not
// find it.
func checkNames(path string, conf map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(conf)) {
		for _, known := range confNames {
			if name != known && strings.EqualFold(name, known) {
				return fmt.Errorf("%s has %s, want %s", path, name, known)
			}
		}
	}
	return nil
}

func missing(all []setting) bool {
	return !slices.ContainsFunc(all, func(s setting) bool { return s.value != "" })
}

// authentication accepts the forms of parameters that Pulsar's tools accept. Upstream accepts only JSON.
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
	values["username"] = cmp.Or(values["username"], values["userId"]) // userId is Java's name
	data, _ := json.Marshal(values)                                   // cannot fail
	return pulsar.NewAuthentication(plugin, string(data))
}

// provider is the part of upstream's authentication that the admin API uses.
type provider interface {
	http.RoundTripper
	Init() error
	GetTLSCertificate() (*tls.Certificate, error)
	WithTransport(http.RoundTripper) error
}

// connect returns a client of the broker and one of its admin API. Both have a TLS configuration that connect makes:
// upstream's own always requires that the certificate names the host, and upstream only logs TLS errors.
func (c *connection) connect(log *slog.Logger) (pulsar.Client, admin.API, error) {
	api := admin.API{URL: c.adminURL}
	config := &tls.Config{InsecureSkipVerify: c.insecure} //nolint:gosec // the user's choice
	c.tls = config
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
	if c.anyHost && !c.insecure {
		config.InsecureSkipVerify = true //nolint:gosec // VerifyConnection verifies the issuer
		config.VerifyConnection = func(state tls.ConnectionState) error {
			o := x509.VerifyOptions{Roots: config.RootCAs, Intermediates: x509.NewCertPool()}
			for _, certificate := range state.PeerCertificates[1:] {
				o.Intermediates.AddCert(certificate)
			}
			_, err := state.PeerCertificates[0].Verify(o)
			return err
		}
	}
	if err := c.checkKeys(); err != nil {
		return nil, api, err
	}
	o := pulsar.ClientOptions{URL: c.url, Logger: plog.NewLoggerWithSlog(log),
		MetricsRegisterer: prometheus.NewRegistry(),
		TLSConfig:         config}
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
