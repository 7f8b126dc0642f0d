package history

import (
	"os"
	"path/filepath"
)

// Create creates the file of one process in the folder of a history. The file stays open.
func Create(dir, name string) (*Writer, error) {
	file, err := os.Create(filepath.Join(dir, name+".jsonl"))
	if err != nil {
		return nil, err
	}
	return NewWriter(file), nil
}

// ReadFolder calls visit with every line of the files that Create made in a folder, in the order of the lines' times.
func ReadFolder(dir string, visit func(*Line)) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return err
	}
	var sources []Source
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		sources = append(sources, Source{name, file})
	}
	return read(visit, sources...)
}
