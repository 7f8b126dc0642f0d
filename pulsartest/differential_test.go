package pulsartest

import (
	"flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A scenario is a program whose trace does not depend on the broker.
type scenario struct {
	name string
	run  func(*script)
}

var scenarios = slices.Concat(ackScenarios, positionScenarios, choiceScenarios, topicScenarios, clientScenarios)

var update = flag.Bool("update", false, "write the traces of the broker at PULSAR_URL to testdata")

// TestSameAsTheRealBroker plays each scenario on this broker and compares what
// happens with the trace that a real Pulsar 4.0.7 left in testdata. With
// PULSAR_URL and PULSAR_ADMIN_URL that broker is compared too.
func TestSameAsTheRealBroker(t *testing.T) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join("testdata", sc.name+".trace")
			if url := os.Getenv("PULSAR_URL"); url != "" {
				real := play(t, sc, url, os.Getenv("PULSAR_ADMIN_URL"), 400*time.Millisecond)
				if *update {
					require.NoError(t, os.MkdirAll("testdata", 0o777))
					require.NoError(t, os.WriteFile(file, []byte(real), 0o666))
				}
				want, err := os.ReadFile(file)
				require.NoError(t, err)
				require.Equal(t, string(want), real, "the real broker")
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			s := NewServer(t)
			require.Equal(t, string(want), play(t, sc, s.URL(), s.AdminURL(), 80*time.Millisecond))
		})
	}
}

func play(t *testing.T, sc scenario, url, admin string, quiet time.Duration) string {
	s := &script{t: t, url: url, admin: admin, quiet: quiet, ledgers: map[uint64]int{},
		topic: fmt.Sprintf("diff-%s-%x", sc.name, rand.Uint32())}
	sc.run(s)
	return strings.ReplaceAll(strings.Join(s.trace, "\n")+"\n", s.topic, "T")
}
