// The key of this browser: exchanged once for the code in the address, then sent with every call.
// It is in localStorage, whose origin includes the port: unlike a cookie it is never sent to
// another server of this machine.
const storageName = 'townhall-console-key';

let key = readStorage();

/** Exchanges the code in the address, if any, for a key. Resolves to whether the page has a key. */
export async function fetchKey(): Promise<boolean> {
  const code = location.pathname === '/open' ? new URLSearchParams(location.search).get('code') : null;
  if (location.pathname !== '/') history.replaceState(null, '', `/${location.hash}`);
  if (code === null) return key !== null;
  try {
    const response = await fetch('/open', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ code }),
      signal: AbortSignal.timeout(10_000),
    });
    // Ignore a spent code: it comes from the history of a browser that already has a key.
    if (response.ok) writeStorage(((await response.json()) as { key: string }).key);
  } catch {
    // The console does not answer; the first overview shows that.
  }
  return key !== null;
}

/** The headers with the key. */
export function keyHeaders(): Record<string, string> {
  return key === null ? {} : { authorization: `Bearer ${key}` };
}

/** Removes a key that the console refuses. */
export function dropKey(): void {
  // Another tab may have fetched a new key meanwhile.
  if (key !== null && readStorage() === key) localStorage.removeItem(storageName);
  key = null;
}

// A browser may forbid storage; the key then lasts until the page is reloaded.
function readStorage(): string | null {
  try {
    return localStorage.getItem(storageName);
  } catch {
    return null;
  }
}

function writeStorage(value: string): void {
  key = value;
  try {
    localStorage.setItem(storageName, value);
  } catch {
    // See readStorage.
  }
}
