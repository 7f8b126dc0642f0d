// Package admin calls a broker's admin REST API, for tests, faults and benchmarks.
package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Call sends body as JSON, unless it is nil, to a path below /admin/v2 of the API at url, and reads what comes back into answer,
// unless that is nil. A topic's name in path is made the path that it has there. A status of 300 or more is an error.
func Call(ctx context.Context, url, method, path string, body, answer any) error {
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(data)
	}
	path = strings.Replace(path, "://", "/", 1)
	req, err := http.NewRequestWithContext(ctx, method, url+"/admin/v2/"+path, in)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true // no connection stays behind
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	if answer != nil {
		return json.Unmarshal(text, answer)
	}
	return nil
}
