// Package docs_test compares the documents with the code.
package docs_test

import (
	"cmp"
	"go/ast"
	"go/doc"
	"go/parser"
	gotoken "go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests name files relative to the root.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// Packages, exported names, fields and methods have documentation.
func TestEverythingExportedIsDocumented(t *testing.T) {
	for _, dir := range []string{".", "acktimeout", "attempts", "backoff", "config", "deadletter", "doctor", "metrics", "nack", "pulsartest", "reconsume", "worker"} {
		t.Run(dir, func(t *testing.T) {
			set := gotoken.NewFileSet()
			files, err := filepath.Glob(filepath.Join(dir, "*.go"))
			require.NoError(t, err)
			var parsed []*ast.File
			for _, name := range files {
				if !strings.HasSuffix(name, "_test.go") {
					file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
					require.NoError(t, err)
					parsed = append(parsed, file)
				}
			}
			p, err := doc.NewFromFiles(set, parsed, dir)
			require.NoError(t, err)
			assert.NotEmpty(t, p.Doc, "package %s", p.Name)
			checkValues(t, append(p.Consts, p.Vars...))
			checkFuncs(t, p.Funcs)
			for _, typ := range p.Types {
				assert.NotEmpty(t, typ.Doc, typ.Name)
				checkValues(t, append(typ.Consts, typ.Vars...))
				checkFuncs(t, append(typ.Funcs, typ.Methods...))
				fields, ok := typ.Decl.Specs[0].(*ast.TypeSpec).Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, f := range fields.Fields.List {
					if len(f.Names) > 0 && f.Names[0].IsExported() {
						assert.False(t, f.Doc == nil && f.Comment == nil, "%s.%s", typ.Name, f.Names[0])
					}
				}
			}
		})
	}
}

func checkFuncs(t *testing.T, funcs []*doc.Func) {
	for _, f := range funcs {
		if f.Name != "Error" || f.Recv == "" { // Error needs no comment
			assert.NotEmpty(t, f.Doc, "%s %s", f.Recv, f.Name)
		}
	}
}

// checkValues checks that each exported value or its group has a comment.
func checkValues(t *testing.T, values []*doc.Value) {
	for _, v := range values {
		for _, spec := range v.Decl.Specs {
			s := spec.(*ast.ValueSpec)
			if s.Names[0].IsExported() {
				assert.False(t, v.Doc == "" && s.Doc == nil && s.Comment == nil, "%s", s.Names)
			}
		}
	}
}

func TestArchitectureNamesEveryPackage(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	require.NoError(t, err)
	for _, dir := range []string{"internal/*", "cmd/*", "test/*", "*"} {
		folders, err := filepath.Glob(dir)
		require.NoError(t, err)
		for _, folder := range folders {
			if sources, _ := filepath.Glob(filepath.Join(folder, "*.go")); len(sources) > 0 {
				assert.True(t, strings.Contains(string(text), filepath.ToSlash(folder)), "%s is missing", folder)
			}
		}
	}
}

// Each difference from upstream has a test.
func TestMigrationNamesExistingTests(t *testing.T) {
	text, err := os.ReadFile("docs/migration.md")
	require.NoError(t, err)
	files, err := filepath.Glob("test/*/*_test.go")
	require.NoError(t, err)
	var sources strings.Builder
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		sources.Write(source)
	}
	_, table, found := strings.Cut(string(text), "| before | now | shown by |\n|---|---|---|---|\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	for row := range strings.Lines(table) {
		names := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(row, -1)
		assert.NotEmpty(t, names, row)
		for _, name := range names {
			assert.Contains(t, sources.String(), "func "+name[1]+"(")
		}
	}
}

// A test is in the package that precedes its name, or in a folder that its row names.
func TestContributingNamesExistingTests(t *testing.T) {
	text, err := os.ReadFile("docs/CONTRIBUTING.md")
	require.NoError(t, err)
	tested := 0
	for row := range strings.Lines(string(text)) {
		folders := regexp.MustCompile("`(test/\\w+)`").FindAllStringSubmatch(row, -1)
		for _, name := range regexp.MustCompile("`(?:(\\w+)\\.)?(Test\\w+)`").FindAllStringSubmatch(row, -1) {
			in := []string{cmp.Or(name[1], "test/*")}
			if name[1] == "" && len(folders) > 0 {
				in = in[:0]
				for _, folder := range folders {
					in = append(in, folder[1])
				}
			}
			assert.True(t, slices.ContainsFunc(in, func(folder string) bool { return hasTest(t, folder, name[2]) }), name[0])
			tested++
		}
	}
	assert.Greater(t, tested, 20)
}

// hasTest reports whether a test is in a package.
func hasTest(t *testing.T, folder, name string) bool {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	require.NoError(t, err)
	return slices.ContainsFunc(files, func(file string) bool {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		return strings.Contains(string(source), "func "+name+"(")
	})
}
