package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pulsar-redelivery/redelivery/config"
	"github.com/pulsar-redelivery/redelivery/doctor"
	"github.com/pulsar-redelivery/redelivery/ui"
)

const uiUsage = `Usage: redelivery ui [flags] [topic ...]

Serves pages for the browser: the backlog of each subscription, the messages
that wait and why, dead letters by cause, the doctor's checks, and the schedule
of a policy. If no topic is given, the pages show all topics of a namespace.
Without -allow-changes, the pages change nothing.

  redelivery ui
  redelivery ui -subscription billing -allow-changes orders
  redelivery ui -listen 0.0.0.0:7070 -token-file secret -host ops.example

What is shown:
  -subscription name                only this one; default: all
  -namespace public/default         all its topics, if no topic is given
  -config file, -consumer name      the policies of a file, for the doctor and
                                    the page of policies
  -hide-payloads                    show no payloads, and export none
What may be changed:
  -allow-changes                    replay, purge, forget and redeliver, each
                                    after a second click
  -export-dir .                     where a purge exports letters first
Where:
  -listen 127.0.0.1:7070            at an address other than loopback, browsers
                                    need a token, which is printed once
  -token-file file                  a file with the token; then loopback needs
                                    the token, too
  -insecure-listen                  no address needs a token
  -host name                        a name by which browsers reach the pages,
                                    in addition to localhost and IP addresses;
                                    may be repeated
Connection: as in redelivery dlq -h
Output:
  -v                                the client's log, on stderr
`

// uiFlags has the values of the flags of redelivery ui.
type uiFlags struct {
	connection
	ui.Options
	listen, tokenFile, config, consumer string
	insecureListen                      bool
	stdout, stderr                      io.Writer
}

func uiCommand(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	f := &uiFlags{stdout: stdout, stderr: stderr}
	err := f.parse(args)
	if err == nil {
		err = f.run(ctx)
	}
	return ending{"ui", uiUsage, "the flags", stdout, stderr}.exit(err)
}

func (f *uiFlags) parse(args []string) error {
	set := flag.NewFlagSet("redelivery ui", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	f.flags(set)
	set.StringVar(&f.Subscription, "subscription", "", "")
	set.StringVar(&f.Namespace, "namespace", "public/default", "")
	set.Func("config", "", fileInto(&f.config))
	set.StringVar(&f.consumer, "consumer", "", "")
	set.BoolVar(&f.HidePayloads, "hide-payloads", false, "")
	set.BoolVar(&f.AllowChanges, "allow-changes", false, "")
	set.StringVar(&f.ExportDir, "export-dir", ".", "")
	set.StringVar(&f.listen, "listen", "127.0.0.1:7070", "")
	set.StringVar(&f.tokenFile, "token-file", "", "")
	set.BoolVar(&f.insecureListen, "insecure-listen", false, "")
	set.Func("host", "", func(s string) error { f.Hosts = append(f.Hosts, s); return nil })
	var err error
	if f.Topics, err = parseAll(set, args); err != nil {
		return err
	}
	for _, topic := range f.Topics {
		if err := topicName("topic", topic); err != nil {
			return errUsage{err}
		}
	}
	if err := namespaceName("-namespace", f.Namespace); err != nil {
		return errUsage{err}
	}
	switch _, _, err := net.SplitHostPort(f.listen); {
	case err != nil:
		return errUsage{fmt.Errorf("-listen is %q, want an address such as 127.0.0.1:7070", f.listen)}
	case f.consumer != "" && f.config == "":
		return errUsage{errors.New("-consumer is given, want -config too")}
	case f.tokenFile != "" && f.insecureListen:
		return errUsage{errors.New("-token-file and -insecure-listen are both given, want one of them")}
	}
	if info, err := os.Stat(f.ExportDir); f.ExportDir != "" && (err != nil || !info.IsDir()) {
		return errUsage{fmt.Errorf("-export-dir is %q, want a directory", f.ExportDir)}
	}
	return nil
}

func (f *uiFlags) run(ctx context.Context) error {
	if err := f.applyFile(); err != nil {
		return err
	}
	client, api, err := f.open(ctx, f.stderr)
	if err != nil {
		return err
	}
	defer client.Close()
	f.Client, f.Admin = client, ui.Admin(api)
	f.Encryption, f.Decryption = f.encryption()
	f.Logger = slog.New(slog.NewTextHandler(f.stderr, nil))
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	address := listener.Addr().(*net.TCPAddr)
	query, err := f.takeToken(address)
	if err != nil {
		return err
	}
	pages, err := ui.New(f.Options)
	if err != nil {
		return err
	}
	defer pages.Close()
	server := &http.Server{Handler: pages, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	fmt.Fprintf(f.stdout, "http://%s/%s\n", address, query)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return server.Close()
	}
}

// takeToken reads the token from its file. Without a file, it makes a token if the address needs one, and returns it as
// a query to append to the printed address.
func (f *uiFlags) takeToken(address *net.TCPAddr) (query string, err error) {
	switch {
	case f.tokenFile != "":
		text, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return "", err
		}
		if f.Token = string(bytes.TrimSpace(text)); len(f.Token) < 16 {
			return "", fmt.Errorf("the token of %s has %d characters, want at least 16", f.tokenFile, len(f.Token))
		}
	case !address.IP.IsLoopback() && !f.insecureListen:
		f.Token = rand.Text()
		return "?token=" + f.Token, nil
	}
	return "", nil
}

// applyFile sets options from the file of -config.
func (f *uiFlags) applyFile() error {
	if f.config == "" {
		return nil
	}
	file, err := loadFile(f.config, "ui", f.stderr)
	if err != nil {
		return err
	}
	f.Config = file
	if f.consumer == "" {
		return nil
	}
	if _, err := file.Options(f.consumer); err != nil { // its error lists the consumers of the file
		return err
	}
	f.Setup = func(topic, subscription string) doctor.Setup { return setupOf(file, f.consumer, topic, subscription) }
	return nil
}

// setupOf returns the doctor's setup of a file's consumer and worker.
func setupOf(file *config.Config, consumer, topic, subscription string) doctor.Setup {
	d := doctorFlags{setup: doctor.Setup{Topic: topic, Subscription: subscription}}
	d.applyFile(file, consumer)
	return d.setup
}
