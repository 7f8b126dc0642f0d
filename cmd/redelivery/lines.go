package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// lines is a file of letters. Before its first write, it cuts off an incomplete last letter, which an interrupted purge
// wrote only in part and did not acknowledge. No other purge of the topic runs at the same time.
type lines struct {
	*os.File
	whole bool // the last letter is complete
}

func (l *lines) Write(p []byte) (int, error) {
	if !l.whole {
		if err := l.cut(); err != nil {
			return 0, err
		}
		l.whole = true
	}
	return l.File.Write(p)
}

func (l *lines) cut() error {
	info, err := l.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := os.Open(l.Name()) // l is open for writing only
	if err != nil {
		return err
	}
	defer file.Close()
	end := info.Size()
	for buffer := make([]byte, 64<<10); end > 0; {
		block := buffer[:min(end, int64(len(buffer)))]
		from := end - int64(len(block))
		if _, err := file.ReadAt(block, from); err != nil {
			return err
		}
		if i := bytes.LastIndexByte(block, '\n'); i >= 0 {
			end = from + int64(i) + 1
			break
		}
		end = from
	}
	const letter = `{"id":"` // the beginning of each line
	head := make([]byte, min(int64(len(letter)), info.Size()-end))
	if _, err := file.ReadAt(head, end); err != nil {
		return err
	}
	if !strings.HasPrefix(letter, string(head)) {
		return fmt.Errorf("%s does not end with a letter, want the file of an earlier purge, or a new one", l.Name())
	}
	return l.Truncate(end)
}
