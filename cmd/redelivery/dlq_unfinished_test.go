package main

import (
	"strings"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// The command in the error continues the unfinished replay.
func TestDlqUnfinishedNamesTheCommandThatContinues(t *testing.T) {
	for _, args := range []string{
		"-key customer-3 -key customer-4 -property 'EXCEPTION_TYPE=*net.OpError' -after 2020-01-02 -before 2h",
		"-topic persistent://public/default/orders -routing go -max 9 -max-replays 2",
	} {
		b := newBroker(t)
		replay := "replay orders-billing-DLQ " + args
		code, _, stderr := dlqRun("", append(words(replay), "-canary", "2", "-canary-timeout", "10ms", "-yes")...)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "canary")
		code, _, stderr = dlqRun("", "replay", "orders-billing-DLQ", "-id", "1:2:0", "-yes")
		require.Equal(t, 1, code)
		require.NotContains(t, stderr, "{")
		_, command, found := strings.Cut(strings.TrimSuffix(stderr, " -yes; to abandon it and start yours, add -new\n"),
			"; this continues it: redelivery dlq ")
		require.True(t, found, stderr)
		for _, flag := range []string{"-key customer-4", "'EXCEPTION_TYPE=*net.OpError'", "-before 2", "-topic ",
			"-routing go", "-max 9", "-max-replays 2"} {
			if name, _, _ := strings.Cut(flag, " "); strings.Contains(args, name) {
				require.Contains(t, command, flag)
			}
		}
		code, stdout, stderr := dlqRun("", append(words(command), "-yes")...)
		require.Zero(t, code, stderr)
		require.Contains(t, stdout, ", resumed.")
		b.server.Close()
	}
}

func TestDlqUnfinishedQuotesForTheShell(t *testing.T) {
	d := &dlq{topic: "dead-DLQ", dlqFlags: dlqFlags{subscription: "audit"}}
	err := d.unfinished(&deadletter.UnfinishedError{Run: "7",
		Options: deadletter.ReplayOptions{Filter: deadletter.Filter{Keys: []string{"it's", "a b"}}}})
	require.EqualError(t, err, `deadletter: an earlier replay is not finished: run 7 of 0001-01-01 00:00:00; this continues it: redelivery dlq replay dead-DLQ `+
		`-key 'it'\''s' -key 'a b' -subscription audit -yes; to abandon it and start yours, add -new`)
}

func TestDlqUnfinishedAsksForTheFilesOfTheKey(t *testing.T) {
	for private, want := range map[string]string{"": "FILE", "own.pem": "own.pem"} {
		d := &dlq{topic: "dead-DLQ", connection: connection{secret: private}}
		err := d.unfinished(&deadletter.UnfinishedError{Run: "7", Options: deadletter.ReplayOptions{
			Encryption: &pulsar.ProducerEncryptionInfo{Keys: []string{"k"}}}})
		require.ErrorContains(t, err, "dead-DLQ -encryption-key-name k -encryption-public-key FILE "+
			"-encryption-private-key "+want+" -yes")
	}
}

func TestDlqUnfinishedEditIsContinuedOnItsPage(t *testing.T) {
	d := &dlq{topic: "dead-DLQ"}
	err := d.unfinished(&deadletter.UnfinishedError{Run: "7", Edited: true,
		Options: deadletter.ReplayOptions{Filter: deadletter.Filter{IDs: []string{"1:2:0"}}}})
	require.EqualError(t, err, "deadletter: an earlier replay is not finished: run 7 of 0001-01-01 00:00:00; it edits letter 1:2:0; "+
		"to continue it, repeat the edit on the page of redelivery ui; to abandon it and start yours, add -new")
}

// words returns the words of a command line in which only whole words are quoted.
func words(line string) (all []string) {
	for word := range strings.FieldsSeq(line) {
		all = append(all, strings.Trim(word, "'"))
	}
	return all
}
