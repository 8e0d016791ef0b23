// How a server command opens its doors: an address that cannot be had is told with what to do about it, and whatever
// was started before then is ended, so that the command ends too.

/** Rejects, where the system refuses an address, in words that name the setting by which another one is taken. */
export async function opened<T>(listening: Promise<T>, settingOf: (port: number | undefined) => string): Promise<T> {
  try {
    return await listening;
  } catch (cause) {
    const { syscall, code, port, address, hostname } = cause as NodeJS.ErrnoException & { port?: number; address?: string; hostname?: string };
    if (syscall !== 'listen' && syscall !== 'getaddrinfo') throw cause;
    const setting = settingOf(port);
    if (code === 'EADDRINUSE') {
      throw new Error(`The port ${port} is taken: "townhall doctor" says by whom. Stop that program, or give another port with ${setting}; 0 takes any free one.`, { cause });
    }
    if (code === 'EACCES') throw new Error(`This user may not open the port ${port}; give one above 1023 with ${setting}.`, { cause });
    throw new Error(`"${address ?? hostname}" is no address of this machine (${code}); give one of its own with ${setting.replace('PORT', 'HOST')}, or 0.0.0.0 for all.`, { cause });
  }
}

/** Closes what was opened for nothing. */
export async function orClosed<T>(work: Promise<T>, close: () => Promise<void>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    await close();
    throw error;
  }
}
