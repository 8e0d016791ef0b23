// The provider and its hooks. The state lives in the `WebLogin`, outside React, so a client that is
// used outside components has the same user.
'use client';

import type { GatewayClient, SignInOptions, User, WebLogin, WebLoginState } from '@townhall/gateway';
import {
  createContext,
  createElement,
  type ReactElement,
  type ReactNode,
  useCallback,
  useContext,
  useEffect,
  useState,
  useSyncExternalStore,
} from 'react';

export interface TownhallProviderProps {
  /** The result of `createWebLogin`. Create it once, outside the component. */
  login: WebLogin;
  children?: ReactNode;
}

/** What `useUser` returns. */
export interface UserContext {
  /** `loading` until a stored or returning login is read. */
  status: WebLoginState['status'];
  user: User | null;
  /** Why a login with which the browser returned could not be finished. */
  error: Error | null;
  /** Leaves the page for the login page. */
  signIn(options?: SignInOptions): Promise<never>;
  signOut(): Promise<void>;
}

const LoginContext = createContext<{ login: WebLogin; error: Error | null } | null>(null);

/** Gives the components below it the user of `login`. */
export function TownhallProvider({ login, children }: TownhallProviderProps): ReactElement {
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    let isMounted = true;
    login.handle().catch((reason: unknown) => {
      if (isMounted) setError(reason instanceof Error ? reason : new Error(String(reason)));
    });
    return () => {
      isMounted = false;
    };
  }, [login]);
  return createElement(LoginContext.Provider, { value: { login, error } }, children);
}

/** The user and the ways in and out. */
export function useUser(): UserContext {
  const { login, error } = useLogin();
  const { status, user } = useSyncExternalStore(
    useCallback((listener) => login.subscribe(listener), [login]),
    () => login.state(),
    () => loadingState,
  );
  return {
    status,
    user,
    error,
    signIn: (options) => login.signIn(options),
    signOut: () => login.signOut(),
  };
}

/** A client with the token of the user who is signed in. */
export function useClient(): GatewayClient {
  return useLogin().login.client;
}

// A server renders what a browser shows before it has read its storage.
const loadingState: WebLoginState = { status: 'loading', user: null };

function useLogin(): { login: WebLogin; error: Error | null } {
  const context = useContext(LoginContext);
  if (context === null) throw new Error('Use this within a <TownhallProvider>.');
  return context;
}
