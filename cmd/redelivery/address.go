package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// setting is an address, and the place where it was given, such as a flag. The address is "" if it was not given there.
type setting struct{ where, value string }

// services has the schemes that an address may have, and the default port of each.
type services struct {
	want  string // the wanted form, for errors
	ports map[string]string
}

var (
	brokers = services{"pulsar://host:6650 or pulsar+ssl://host:6651",
		map[string]string{"pulsar": "6650", "pulsar+ssl": "6651", "http": "80", "https": "443"}}
	admins = services{"http://host:8080 or https://host:8443", map[string]string{"http": "80", "https": "443"}}
)

// first returns the first address that is set. It must have one of the schemes, and no path after its hosts, since
// brokers do not serve below a path.
func (s services) first(all ...setting) (string, error) {
	i := slices.IndexFunc(all, func(x setting) bool { return x.value != "" })
	address := strings.TrimSpace(all[i].value)
	scheme, hosts, _ := strings.Cut(strings.TrimRight(address, "/"), "://")
	if s.ports[scheme] != "" && strings.Trim(hosts, ":,") != "" && !strings.ContainsAny(hosts, "/?# \t") {
		return scheme + "://" + hosts, nil
	}
	err := fmt.Errorf("%s is %q, want %s", all[i].where, address, s.want)
	if strings.HasPrefix(all[i].where, "-") {
		err = errUsage{err}
	}
	return "", err
}

// hosts returns the hosts of an address, with their ports. An address may have several hosts, separated by commas.
func (s services) hosts(address string) (all []string) {
	scheme, rest, _ := strings.Cut(address, "://")
	rest, _, _ = strings.Cut(rest, "/")
	for host := range strings.SplitSeq(rest, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), s.ports[scheme])
		}
		all = append(all, host)
	}
	return all
}

// local reports whether all hosts of an address are this computer.
func (s services) local(address string) bool {
	for _, host := range s.hosts(address) {
		name, _, _ := net.SplitHostPort(host)
		if ip := net.ParseIP(name); name != "localhost" && !ip.IsLoopback() {
			return false
		}
	}
	return true
}

// dialPatience is how long a broker or its admin API may take to accept a connection. Upstream would try for half a
// minute, and its error would not name the address.
const dialPatience = 5 * time.Second

// reach returns an error if no host of the broker's address accepts a connection, with TLS if the scheme says so. It
// uses c.tls, which connect sets.
func (c *connection) reach(ctx context.Context) error {
	var errs []error
	for _, host := range brokers.hosts(c.url) {
		conn, err := c.dial(ctx, host)
		if err == nil {
			return conn.Close()
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("no connection to the broker at %s: %w", c.url, errors.Join(errs...))
}

// refusalTime is how long a broker may take after the handshake to refuse the client's certificate.
const refusalTime = 200 * time.Millisecond

func (c *connection) dial(ctx context.Context, host string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: dialPatience}
	if scheme, _, _ := strings.Cut(c.url, "://"); scheme != "pulsar+ssl" && scheme != "https" {
		return dialer.DialContext(ctx, "tcp", host)
	}
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	conn, err := (&tls.Dialer{NetDialer: dialer, Config: c.tls}).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	_ = conn.SetReadDeadline(time.Now().Add(refusalTime))
	if _, err := conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// choose reduces several addresses of the admin API to the first one that accepts a connection.
func (c *connection) choose(ctx context.Context) error {
	scheme, _, _ := strings.Cut(c.adminURL, "://")
	hosts := admins.hosts(c.adminURL)
	if len(hosts) == 1 {
		return nil
	}
	var errs []error
	for _, host := range hosts {
		dialer := net.Dialer{Timeout: dialPatience}
		conn, err := dialer.DialContext(ctx, "tcp", host)
		if err == nil {
			c.adminURL = scheme + "://" + host
			return conn.Close()
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("no connection to the admin API at %s: %w", c.adminURL, errors.Join(errs...))
}

// withAddress adds the broker's address to upstream's connection errors, which do not name it.
func (c *connection) withAddress(err error) error {
	if err != nil && strings.Contains(err.Error(), "connection error") {
		return fmt.Errorf("no connection to the broker at %s: %w", c.url, err)
	}
	return err
}
