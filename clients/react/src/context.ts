// The provider and its hooks. The state lives in the `WebLogin`, outside React, so a client that is
// used outside components has the same user.
'use client';

import type {
  GatewayClient,
  SessionEnd,
  SignInOptions,
  User,
  WebLogin,
  WebLoginState,
} from '@townhall/gateway';
import {
  createContext,
  createElement,
  type ReactElement,
  type ReactNode,
  useCallback,
  useContext,
  useEffect,
  useMemo,
  useState,
  useSyncExternalStore,
} from 'react';

export interface TownhallProviderProps {
  /** The result of `createWebLogin`. Create it once, outside the component. */
  login: WebLogin;
  children?: ReactNode;
}

/** What `useUser` returns. `signIn` and `signOut` stay the same functions over all renders. */
export interface UserContext {
  /** `loading` until a stored or returning login is read. */
  status: WebLoginState['status'];
  user: User | null;
  /** When the user has to sign in again; null while no user is signed in. */
  expiresAt: Date | null;
  /** Why the session ended without a sign-out: `expired` or `revoked`; else null. */
  endReason: SessionEnd | null;
  /**
   * Why a sign-in could not begin, or could not be finished after the browser returned.
   */
  error: Error | null;
  /** Leaves the page for the login page, and returns to the same address by default. */
  signIn(options?: SignInOptions): Promise<void>;
  signOut(): Promise<void>;
}

interface ProvidedLogin extends Pick<UserContext, 'error' | 'signIn' | 'signOut'> {
  login: WebLogin;
}

const LoginContext = createContext<ProvidedLogin | null>(null);

/** Gives the components below it the user of `login`. */
export function TownhallProvider({ login, children }: TownhallProviderProps): ReactElement {
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    let isMounted = true;
    login.handle().catch((reason: unknown) => {
      if (isMounted) setError(toError(reason));
    });
    return () => {
      isMounted = false;
    };
  }, [login]);
  const signIn = useCallback(
    (options?: SignInOptions) => {
      setError(null);
      return login.signIn(options).catch((reason: unknown) => setError(toError(reason)));
    },
    [login],
  );
  const signOut = useCallback(() => login.signOut(), [login]);
  const value = useMemo(() => ({ login, error, signIn, signOut }), [login, error, signIn, signOut]);
  return createElement(LoginContext.Provider, { value }, children);
}

function toError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error(String(reason));
}

/** The user, and the functions that sign in and out. */
export function useUser(): UserContext {
  const { login, error, signIn, signOut } = useLogin();
  const state = useSyncExternalStore(
    useCallback((listener) => login.subscribe(listener), [login]),
    () => login.state(),
    () => loadingState,
  );
  return { ...state, error, signIn, signOut };
}

/** A client with the token of the user who is signed in. */
export function useClient(): GatewayClient {
  return useLogin().login.client;
}

// A server has no browser storage to read, so it renders the state that a browser shows before it has
// read its own.
const loadingState: WebLoginState = { status: 'loading', user: null, expiresAt: null, endReason: null };

function useLogin(): ProvidedLogin {
  const context = useContext(LoginContext);
  if (context === null) throw new Error('Use this within a <TownhallProvider>.');
  return context;
}
