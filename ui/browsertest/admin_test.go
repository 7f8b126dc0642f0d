package browsertest

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"strings"
)

// answers are a real broker's answers to requests that the broker in this process does not know.
var answers = map[string]string{
	"/namespaces/public/default":             `{"deduplicationEnabled": true, "delayed_delivery_policies": {"active": true, "tickTime": 1000}}`,
	"/brokers/configuration/runtime":         `{"acknowledgmentAtBatchIndexLevelEnabled": "true", "maxMessageSize": "5242880"}`,
	"/persistent/public/default/partitioned": `[]`,
}

// forward forwards a request to the broker's admin API. For the broker in this process, it adds answers of a real one.
func forward(s *site, w http.ResponseWriter, r *http.Request) {
	inProcess := os.Getenv("PULSAR_URL") == ""
	for path, answer := range answers {
		if inProcess && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, path) {
			_, _ = io.WriteString(w, answer)
			return
		}
	}
	req, err := http.NewRequestWithContext(r.Context(), r.Method, s.adminURL+r.URL.RequestURI(), r.Body)
	if err != nil {
		s.t.Error(err)
		return
	}
	req.Header = r.Header
	req.Header.Del("Accept-Encoding") // so that the answer is not compressed
	resp, err := http.DefaultClient.Do(req)
	if err != nil { // the test has ended
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if inProcess && strings.HasSuffix(r.URL.Path, "/orders/stats") && resp.StatusCode == http.StatusOK {
		text = bytes.Replace(text, []byte(`{`), []byte(`{"msgRateIn":41.7,`), 1)
		text = bytes.Replace(text, []byte(`"msgBacklog":`), []byte(`"msgRateOut":43.2,"msgBacklog":`), 1)
	}
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.Header().Set("Date", resp.Header.Get("Date"))
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(text)
}
