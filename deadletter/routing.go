package deadletter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/spaolacci/murmur3"

	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// Routing chooses the partition that a letter goes to in a partitioned topic. Every Routing sends letters of one key to
// one partition, and spreads letters without a key.
type Routing string

// Values of Routing. The hashes of the clients agree on most ASCII keys, and on few other keys.
const (
	// SamePartition chooses the partition that the letter came from. If the letter does not name that partition, or
	// goes to another topic, SamePartition chooses as JavaStringHash does.
	SamePartition Routing = ""
	// JavaStringHash is the default of producers of the Java client: String.hashCode() & 0x7fffffff.
	JavaStringHash Routing = "java"
	// Murmur3Hash is the hash of producers of the Java client and of pulsar-client-go with their hashing scheme
	// Murmur3_32Hash.
	Murmur3Hash Routing = "murmur3"
	// GoStringHash is the default of producers of pulsar-client-go: all 32 bits of the hash of the key's UTF-8 bytes.
	GoStringHash Routing = "go"
)

func (r Routing) check() error {
	if all := []Routing{SamePartition, JavaStringHash, Murmur3Hash, GoStringHash}; !slices.Contains(all, r) {
		return fmt.Errorf("deadletter: ReplayOptions.Routing is %q, want one of %q", r, all)
	}
	return nil
}

// partition returns the number of the partition for l in a topic with n partitions.
func (r Routing) partition(l *Letter, topic string, n int) int {
	if p := l.cameFrom(); r == SamePartition && p >= 0 && p < n && topic == topicname.Full(l.Origin) {
		return p
	}
	key := l.OrderingKey
	if key == "" || r != GoStringHash && l.Key != "" { // only Go's producers prefer the ordering key
		key = l.Key
	}
	if key == "" {
		return int((l.pos.Entry + int64(l.pos.Index)) % int64(n))
	}
	var h uint32
	switch r {
	case Murmur3Hash:
		sum := murmur3.New32() // murmur3.Sum32 fails with -race
		_, _ = sum.Write([]byte(key))
		h = sum.Sum32() & 0x7fffffff
	case GoStringHash:
		for i := range len(key) {
			h = 31*h + uint32(key[i])
		}
	default:
		for _, unit := range utf16.Encode([]rune(key)) {
			h = 31*h + uint32(unit)
		}
		h &= 0x7fffffff
	}
	return int(h % uint32(n))
}

// cameFrom returns the number of the partition from which l came, or -1 if l does not name it.
func (l *Letter) cameFrom() int {
	for _, property := range []string{pulsar.SysPropertyRealTopic, reconsume.PropertyOriginTopic} {
		name := l.Properties[property]
		if base := topicname.Base(name); base != name && base == l.Origin {
			return number(name[strings.LastIndex(name, "-")+1:])
		}
	}
	parts := strings.Split(l.OriginID, ":") // ledger:entry:partition, and perhaps :index
	if len(parts) < 3 || number(parts[0]) < 0 || number(parts[1]) < 0 {
		return -1
	}
	return number(parts[2])
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}
