package devstack

import (
	"fmt"
	"syscall"
)

// fullDisk is the use of a disk, in per cent, above which RocketMQ refuses messages. No setting raises it
// (DefaultMessageStore.getDiskSpaceWarningLevelRatio).
const fullDisk = 90

// warnOfFullDisk warns at the start, because otherwise a full disk only shows as failing sends.
func warnOfFullDisk(o Options) {
	var fs syscall.Statfs_t
	if syscall.Statfs(o.Dir, &fs) != nil || fs.Blocks == 0 {
		return
	}
	if used := usedPercent(fs.Blocks, fs.Bfree, fs.Bavail); used >= fullDisk {
		o.Progress(fmt.Sprintf("warning: the disk of %s is %d %% full: RocketMQ refuses messages above %d %%",
			o.Dir, used, fullDisk))
	}
}

// usedPercent counts as RocketMQ does, without the blocks that are reserved for root.
func usedPercent(blocks, free, available uint64) uint64 {
	used := blocks - free
	return used * 100 / max(used+available, 1)
}
