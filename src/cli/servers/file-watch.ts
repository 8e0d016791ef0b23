// Watches files through their folders. That also detects when an editor replaces a file by renaming
// another one over it, and when a missing file is created.
import { watch, type FSWatcher } from 'node:fs';
import { basename, dirname, join } from 'node:path';

export interface FileWatch {
  add(file: string): void;
  /**
   * Resolves with the path of the next file that changes. One save often causes several events, so
   * it waits for 100 ms.
   */
  nextChange(): Promise<string>;
  close(): void;
}

const settleMs = 100;

export function createFileWatch(): FileWatch {
  const folders = new Map<string, { watcher: FSWatcher; names: Set<string> }>();
  const listeners = new Set<(file: string) => void>();

  function watchFolder(folder: string): Set<string> | undefined {
    const names = new Set<string>();
    try {
      const watcher = watch(folder, (_event, name) => {
        if (name === null || !names.has(name)) return;
        for (const listener of listeners) listener(join(folder, name));
      });
      // Removing the folder ends its watch with an error.
      watcher.on('error', () => folders.delete(folder));
      folders.set(folder, { watcher, names });
    } catch {
      // The folder does not exist.
      return undefined;
    }
    return names;
  }

  return {
    add(file) {
      const folder = dirname(file);
      const names = folders.get(folder)?.names ?? watchFolder(folder);
      names?.add(basename(file));
    },
    nextChange() {
      return new Promise((resolve) => {
        const listener = (file: string) => {
          listeners.delete(listener);
          setTimeout(() => resolve(file), settleMs);
        };
        listeners.add(listener);
      });
    },
    close() {
      for (const { watcher } of folders.values()) watcher.close();
    },
  };
}
