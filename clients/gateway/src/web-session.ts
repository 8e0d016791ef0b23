// The stored session of a web login, and the state of it that a page shows.
import type { User } from './generated/types.gen.ts';

/** Why a session ended without a sign-out: it expired, or the server refused its token. */
export type SessionEnd = 'expired' | 'revoked';

/** The state that a page shows; each change creates a new object. */
export type WebLoginState =
  | { readonly status: 'loading'; readonly user: null; readonly expiresAt: null; readonly endReason: null }
  | {
      readonly status: 'signed-out';
      readonly user: null;
      readonly expiresAt: null;
      /** Null after a sign-out, and when no user was signed in. */
      readonly endReason: SessionEnd | null;
    }
  | {
      readonly status: 'signed-in';
      readonly user: User;
      /** When the user has to sign in again. */
      readonly expiresAt: Date;
      readonly endReason: null;
    };

export interface StoredSession {
  userToken: string;
  expiresAt: string;
  user: User;
}

export type BrowserStorage = Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>;

export interface WebSession {
  /** Null when there is no session or it has expired. */
  read(): StoredSession | null;
  write(session: StoredSession): void;
  /** Deletes the session. The reason is null for a sign-out. */
  end(reason: SessionEnd | null): void;
  /** Reads the storage, ends a session that has expired, and notifies the listeners of a change. */
  refresh(): void;
  state(): WebLoginState;
  /** The e-mail address of the user whose session ended without a sign-out. */
  endedEmail(): string | undefined;
  subscribe(listener: () => void): () => void;
}

export function createWebSession(storage: () => BrowserStorage, key: string): WebSession {
  const listeners = createListeners(key, refresh);
  let state: WebLoginState = { status: 'loading', user: null, expiresAt: null, endReason: null };
  let endedEmail: string | undefined;
  const expiryTimer = createExpiryTimer(refresh);

  const stored = () => readJson<StoredSession>(storage, key);

  function show(next: WebLoginState): void {
    state = next;
    expiryTimer.restart(next.expiresAt);
    listeners.notify();
  }

  function end(reason: SessionEnd | null): void {
    const session = stored();
    const user = state.user ?? session?.user;
    endedEmail = reason === null ? undefined : (user?.email ?? undefined);
    if (session !== null) storage().removeItem(key);
    show({ status: 'signed-out', user: null, expiresAt: null, endReason: reason });
  }

  function refresh(): void {
    const session = stored();
    if (session === null) {
      // Another tab may have deleted the session at its expiry.
      const hasExpired = state.status === 'signed-in' && remainingMs(state.expiresAt) <= 0;
      if (state.status !== 'signed-out') end(hasExpired ? 'expired' : null);
      return;
    }
    const expiresAt = new Date(session.expiresAt);
    if (remainingMs(expiresAt) <= 0) end('expired');
    else show({ status: 'signed-in', user: session.user, expiresAt, endReason: null });
  }

  return {
    read() {
      const session = stored();
      return session !== null && remainingMs(new Date(session.expiresAt)) > 0 ? session : null;
    },
    write(session) {
      storage().setItem(key, JSON.stringify(session));
      refresh();
    },
    end,
    refresh,
    state: () => state,
    endedEmail: () => endedEmail,
    subscribe: (listener) => listeners.add(listener),
  };
}

interface Listeners {
  /** Returns a function that removes the listener. */
  add(listener: () => void): () => void;
  notify(): void;
}

/** While there are listeners, calls `onTabChange` when another tab writes the key. */
function createListeners(key: string, onTabChange: () => void): Listeners {
  const listeners = new Set<() => void>();

  // Another tab signed in or out; sessionStorage belongs to one tab and sends no such event.
  function followTabs({ key: changedKey }: StorageEvent): void {
    if (changedKey === key || changedKey === null) onTabChange();
  }

  return {
    add(listener) {
      if (listeners.size === 0 && typeof addEventListener === 'function')
        addEventListener('storage', followTabs);
      listeners.add(listener);
      return () => {
        listeners.delete(listener);
        if (listeners.size === 0 && typeof removeEventListener === 'function')
          removeEventListener('storage', followTabs);
      };
    },
    notify() {
      for (const listener of listeners) listener();
    },
  };
}

// setTimeout waits at most 24.8 days, and the clock may be changed meanwhile, so the expiry is checked at
// least once an hour.
const maxCheckMs = 3_600_000;

function createExpiryTimer(onExpiry: () => void): { restart(expiresAt: Date | null): void } {
  let timer: ReturnType<typeof setTimeout> | undefined;

  function wait(expiresAt: Date): void {
    const check = () => (remainingMs(expiresAt) <= 0 ? onExpiry() : wait(expiresAt));
    timer = setTimeout(check, Math.min(remainingMs(expiresAt), maxCheckMs));
    // In Node.js the timer must not keep the process alive until the expiry.
    (timer as { unref?: () => void }).unref?.();
  }

  return {
    restart(expiresAt) {
      clearTimeout(timer);
      if (expiresAt !== null) wait(expiresAt);
    },
  };
}

/**
 * Null when nothing is stored, when the stored text is not JSON, and when the browser blocks the storage.
 */
export function readJson<T>(storage: () => BrowserStorage, key: string): T | null {
  try {
    return JSON.parse(storage().getItem(key) ?? 'null') as T | null;
  } catch {
    return null;
  }
}

function remainingMs(expiresAt: Date): number {
  return expiresAt.getTime() - Date.now();
}
