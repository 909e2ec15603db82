package redis

import (
	"embed"
	"io/fs"
	"path"

	goredis "github.com/redis/go-redis/v9"
)

//go:embed lua
var sources embed.FS

// scripts are the operations, each one script: Redis runs them one at a time.
type scripts struct {
	acquire, renew, release, report, end, sync, load, mended, restore *goredis.Script
}

// newScripts reads them from a folder.
func newScripts(files fs.FS, folder string) scripts {
	script := func(name string) *goredis.Script { return script(files, folder, name) }
	return scripts{
		acquire: script("acquire"), renew: script("renew"), release: script("release"),
		report: script("report"), end: script("end"), sync: script("sync"), load: script("load"),
		mended: script("mended"), restore: script("restore"),
	}
}

// script joins one operation and what all share. A missing file is a defect of
// the build.
func script(files fs.FS, folder, name string) *goredis.Script {
	source := ""
	for _, part := range []string{"prelude", "mend", name} {
		b, err := fs.ReadFile(files, path.Join(folder, part+".lua"))
		if err != nil {
			panic(err)
		}
		source += string(b)
	}
	return goredis.NewScript(source)
}
