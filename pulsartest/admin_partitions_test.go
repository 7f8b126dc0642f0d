package pulsartest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// A partition is missing if its topic is not partitioned, or has too few partitions. With PULSAR_ADMIN_URL the test
// asks a real broker.
func TestAdminAPIRefusesMissingPartitions(t *testing.T) {
	url := os.Getenv("PULSAR_ADMIN_URL")
	if url == "" {
		url = NewServer(t).AdminURL()
	}
	call := func(method, path string, body any) int {
		var status *admin.Error
		if err := admin.Call(context.Background(), url, method, path, body, nil); errors.As(err, &status) {
			return status.Status
		} else {
			require.NoError(t, err)
		}
		return 0
	}
	topic := fmt.Sprintf("persistent://public/default/p-%08x", rand.Uint32())
	require.Zero(t, call("PUT", topic+"/partitions", 2))
	require.Zero(t, call("PUT", topic+"-plain", nil))
	for name, want := range map[string]map[string]int{
		"-partition-0":       {"GET stats": 0, "PUT subscription/s": 0, "PUT ": 409},
		"-partition-2":       {"GET stats": 404, "PUT subscription/s": 412, "PUT ": 412, "DELETE ": 404},
		"-plain-partition-0": {"GET stats": 404, "PUT ": 412},
		"-none-partition-0":  {"GET stats": 404, "PUT ": 412},
		"-none-partition-01": {"PUT ": 412},
	} {
		for verb, status := range want {
			var method, path string
			_, _ = fmt.Sscan(verb, &method, &path)
			require.Equal(t, status, call(method, strings.TrimSuffix(topic+name+"/"+path, "/"), nil), "%s of %s", verb,
				name)
		}
	}
}
