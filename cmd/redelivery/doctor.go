package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/pulsar-redelivery/redelivery/doctor"
)

const doctorUsage = `Usage: redelivery doctor -subscription name [flags] topic

Checks what redelivery depends on: settings of the broker, the namespace, the
topics and the consumer. It changes nothing. docs/checks.md describes each
check.

  redelivery doctor -subscription billing orders
  redelivery doctor -subscription billing -config redelivery.yaml \
    -consumer billing -handler-time 200ms orders

What is examined:
  -subscription name
  -config file, -consumer name      what a file says about the consumer, and
                                    about the worker of that name
  -type Shared                      subscription type; default: the broker's
What the program does, if no file says it:
  -handler-time 200ms               how long a handler takes
  -concurrency 8                    messages that a process handles at a time;
                                    default: the worker's
  -queue 1000                       ReceiverQueueSize
  -batch-index-acks                 EnableBatchIndexAcknowledgment; or
                                    -batch-index-acks=false
  -failing 0.01                     fraction of messages that become dead
                                    letters
  -instances 4                      consumers; default: those connected now
  -keep-alive 30s, -operation-timeout 30s
  -grace-period 30s                 Kubernetes' terminationGracePeriodSeconds
Connection, by default from PULSAR_URL, PULSAR_ADMIN_URL and client.conf, which
PULSAR_CLIENT_CONF names:
  -url pulsar://localhost:6650, -admin-url http://localhost:8080
  -auth-plugin name, -auth-params params
  -tls-trust-cert-path file, -tls-allow-insecure,
  -tls-enable-hostname-verification
Output:
  -json                             as JSON, for programs
  -v                                the client's log, on stderr

Exit codes: 0, also with warnings; 1 for a problem or an error; 2 for a wrong
command line.
`

// doctorFlags has the values of the flags of redelivery doctor, and its findings.
type doctorFlags struct {
	connection
	setup            doctor.Setup
	config, consumer string
	gracePeriod      time.Duration
	indexAcks        bool
	asJSON           bool
	given            map[string]bool
	stdout, stderr   io.Writer
	findings         []doctor.Finding
}

func doctorCommand(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	f := &doctorFlags{stdout: stdout, stderr: stderr, given: map[string]bool{}}
	err := f.parse(args)
	if err == nil {
		err = f.run(ctx)
	}
	if err == nil && doctor.Worst(f.findings) == doctor.Problem {
		return 1
	}
	return ending{"doctor", doctorUsage, "the flags", stdout, stderr}.exit(err)
}

func (f *doctorFlags) run(ctx context.Context) error {
	if f.config != "" {
		file, err := loadFile(f.config, "doctor", f.stderr)
		if err != nil {
			return err
		}
		if _, err := file.Options(f.consumer); err != nil { // the error lists the consumers of the file
			return err
		}
		f.applyFile(file, f.consumer)
	}
	client, api, err := f.open(ctx, f.stderr)
	if err != nil {
		return err
	}
	defer client.Close()
	f.setup.Admin = doctor.Admin(api)
	if err := f.reach(ctx); err == nil { // upstream would try for a long time, and its error would not name the address
		f.setup.Client = client
	} else {
		c := doctor.Checks()[0]
		f.findings = append(f.findings,
			doctor.Finding{Check: c.Name, Status: doctor.Problem, Found: err.Error(), Why: c.Why,
				Remedy: strings.ReplaceAll(c.Remedy, "`", ""), Link: c.Link()})
	}
	f.findings = append(f.findings, doctor.Examine(ctx, f.setup)...)
	if ctx.Err() != nil { // the findings of an interrupted examination mean nothing
		f.findings = nil
		return errors.New("interrupted")
	}
	if f.asJSON {
		return writeJSON(f.stdout, f.findings)
	}
	f.write()
	return nil
}

// write writes a table of the findings. Below each warning and each problem it writes why it matters, and a remedy.
func (f *doctorFlags) write() {
	widest := 0
	for _, found := range f.findings {
		widest = max(widest, len(found.Check))
	}
	count := map[doctor.Status]int{}
	for _, found := range f.findings {
		count[found.Status]++
		wrapTo(f.stdout, fmt.Sprintf("%-8s %-*s ", found.Status, widest, found.Check), clean(found.Found))
		if found.Status < doctor.Warning {
			continue
		}
		for _, line := range []string{found.Why, "remedy: " + found.Remedy, found.Link} {
			wrapTo(f.stdout, "         ", line)
		}
	}
	fmt.Fprintf(f.stdout, "\n%d ok, %d unknown, %s, %s\n", count[doctor.OK], count[doctor.Unknown],
		plural(count[doctor.Warning], "warning"), plural(count[doctor.Problem], "problem"))
}

// wrapTo writes prefix and then text, in lines of at most width columns. It indents further lines by the length of
// prefix.
func wrapTo(w io.Writer, prefix, text string) {
	column := utf8.RuneCountInString(prefix)
	line, at := prefix, column
	for word := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(word)
		if at > column {
			if at+1+n > width {
				fmt.Fprintln(w, line)
				line, at = strings.Repeat(" ", column), column
			} else {
				line, at = line+" ", at+1
			}
		}
		line, at = line+word, at+n
	}
	fmt.Fprintln(w, line)
}

func plural(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
