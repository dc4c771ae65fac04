// Package dirlock keeps two processes out of one directory. On a local file system an advisory lock does that. On one
// that several machines share, such a lock may be granted to each of them; there, a record in the lock file that its
// holder keeps changing is watched as well.
//
// The rules, for a process that was granted the lock:
//   - The record is of this boot, or there is none: it is not watched. The kernel that granted the lock is the one
//     that would know of another holder. A clean end empties the record.
//   - It is of another boot, on a shared file system: it is watched for two and a half beats, and a beat is a refusal.
//   - It is of another boot, on a local file system: after a reboot, or on the next machine that a disk was moved to,
//     no other holder is possible. It is watched only if it is of another host and changed a moment ago, which no
//     moved disk does, in case the file system is a shared one that is not known as such.
//   - On a shared file system two that start at once both find a record that stands still. So each writes its own,
//     waits and looks whether it is still there; the last one to write goes on.
//
// A holder looks at the record before each beat and says if it is another's: a process that was frozen for longer than
// it is watched, or cut off from the server, may have lost the directory. What it writes until that look is not
// prevented.
package dirlock
