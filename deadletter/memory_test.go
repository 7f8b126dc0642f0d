package deadletter_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// DEADLETTER_LETTERS is the number of letters; a run with a million has passed.
func TestMemoryDoesNotGrowWithTheNumberOfLetters(t *testing.T) {
	b := real(t)
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	n, err := strconv.Atoi(cmp.Or(os.Getenv("DEADLETTER_LETTERS"), "50000"))
	require.NoError(t, err)
	tp := b.topics(0)
	for from := 0; from < n; from += 10_000 {
		var l []*pulsar.ProducerMessage
		for i := from; i < min(from+10_000, n); i++ {
			l = append(l, &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint("letter ", i)), Key: fmt.Sprint(i % 1000),
				Properties: map[string]string{"REAL_TOPIC": tp.origin, "EXCEPTION_MESSAGE": fmt.Sprint("no order ", i),
					"odd": fmt.Sprint(i % 2)}})
		}
		b.publish(pulsar.ProducerOptions{Topic: tp.dlq, CompressionType: pulsar.LZ4}, 1000, l...)
	}
	tool := buildTool(t)
	for _, args := range [][]string{
		{"groups"},
		{"export", "-o", filepath.Join(t.TempDir(), "letters")},
		{"replay", "-yes", "-property", "odd=1"}, // half of every batch
		{"replay", "-yes"},
	} {
		begin := time.Now()
		cmd, out := b.command(tool, append(args, "-json", tp.dlq)...)
		require.NoError(t, cmd.Start())
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		used, running := 0, true
		for running {
			select {
			case err := <-done:
				require.NoError(t, err, out.String())
				running = false
			case <-time.After(20 * time.Millisecond):
				used = max(used, highWater(cmd.Process.Pid))
			}
		}
		t.Logf("%s: %v, %d MB: %s", args[0], time.Since(begin).Round(time.Second), used, out)
		require.NotZero(t, used)
		require.Less(t, used, 250)
	}
	require.Zero(t, b.backlog(tp.dlq, own))
}

var highWaterText = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// highWater returns the most memory that a process has used, in MB, or 0 if it has ended. The rusage of the process
// would include memory of this process.
func highWater(pid int) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if m := highWaterText.FindSubmatch(status); m != nil {
		kb, _ := strconv.Atoi(string(m[1]))
		return kb / 1024
	}
	return 0
}
