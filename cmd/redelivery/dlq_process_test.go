package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

const toolVariable = "REDELIVERY_TEST_TOOL"

// TestMain runs the tool instead of the tests if a test has started this process.
func TestMain(m *testing.M) {
	if os.Getenv(toolVariable) != "" {
		main()
	}
	os.Exit(logtest.Quiet{M: m}.Run())
}

// tool returns the path of a program that runs the tool: this test binary, so that no build is needed.
func tool(t *testing.T) string {
	t.Setenv(toolVariable, "1")
	return os.Args[0]
}

// The interrupted command has exit code 1. No letter is replayed twice.
func TestInterruptedReplayIsContinuedByTheSameCommand(t *testing.T) {
	b := newBroker(t)
	path := tool(t)
	replayed := func() int { return b.server.Subscription(origin+"-billing-RETRY", "billing").Backlog }
	args := []string{"dlq", "replay", "-yes", "-json", "-rate", "40", "orders-billing-DLQ"}
	done := 0
	run := ""
	for range 2 {
		before := replayed()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, path, args...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { return replayed() > before+10 }, time.Minute, 5*time.Millisecond)
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		_ = cmd.Wait()
		require.Equal(t, 1, cmd.ProcessState.ExitCode(), errs.String())
		require.Equal(t, "redelivery dlq: interrupted; the same command goes on from here\n", errs.String())
		var report deadletter.Report
		require.NoError(t, json.Unmarshal(out.Bytes(), &report), out.String())
		require.Equal(t, before+report.Done, replayed())
		require.True(t, run == "" || report.Resumed && report.Run == run)
		run = report.Run
		done += report.Done
	}
	require.Less(t, done, 120)
	code, stdout, stderr := dlqRun("", "replay", "-yes", "orders-billing-DLQ")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, run+", resumed")
	require.Equal(t, 120, replayed())
}

// The number of the line is not stored anywhere.
func TestInterruptedImportNamesTheLineToContinueFrom(t *testing.T) {
	b := newBroker(t)
	path, letters := tool(t), filepath.Join(t.TempDir(), "letters")
	code, _, stderr := dlqRun("", "export", "orders-refunds-DLQ", "-o", letters)
	require.Zero(t, code, stderr)
	stored := func() int { return b.server.Subscription(origin+"-refunds-DLQ", "audit").Backlog - 25 }
	b.server.SetHook(func(c pulsartest.Command) pulsartest.Verdict {
		if c.Type == "SEND" {
			return pulsartest.Pass.After(100 * time.Millisecond)
		}
		return pulsartest.Pass
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "dlq", "import", "orders-refunds-DLQ", "-i", letters, "-yes")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return stored() > 3 }, time.Minute, 5*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	require.Equal(t, 1, cmd.ProcessState.ExitCode(), errs.String())
	want := fmt.Sprintf("redelivery dlq: interrupted; the first %d lines are done; -skip %[1]d continues after these\n", stored())
	require.Equal(t, want, errs.String())
}

// The doctor does not report the interrupt as a problem of the broker.
func TestInterruptEndsEachCommand(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	path := tool(t)
	for _, command := range []string{"doctor", "attempts"} {
		for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
			cmd := exec.Command(path, command, "-subscription", "billing", "-json", "-url",
				"pulsar://"+silent.Addr().String(),
				"-admin-url", "http://"+silent.Addr().String(), "orders")
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			require.NoError(t, cmd.Start())
			kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
			defer kill.Stop()
			for range 2 { // the command first tries the connection, and then asks the admin API
				conn, err := silent.Accept()
				require.NoError(t, err)
				defer conn.Close()
			}
			require.NoError(t, cmd.Process.Signal(signal))
			_ = cmd.Wait()
			require.Equal(t, 1, cmd.ProcessState.ExitCode(), "%s: %s", command, errs.String())
			require.Equal(t, "redelivery "+command+": interrupted\n", errs.String())
			require.Empty(t, out.String())
		}
	}
}

func TestInterruptEndsACommandThatAsksAQuestion(t *testing.T) {
	b := newBroker(t)
	cmd := exec.Command(tool(t), "dlq", "replay", "-to", "origin", "-yes", "orders-billing-DLQ")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	errs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	var said bytes.Buffer
	for buf := make([]byte, 1000); !bytes.Contains(said.Bytes(), []byte("[y/N]")); {
		n, err := errs.Read(buf)
		said.Write(buf[:n])
		require.NoError(t, err, said.String())
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_, err = said.ReadFrom(errs)
	require.NoError(t, err)
	_ = cmd.Wait()
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
	require.Contains(t, said.String(), "interrupted; nothing was changed")
	require.Zero(t, b.server.Subscription(origin, "shipping").Backlog)
}
