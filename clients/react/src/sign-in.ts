// A button that leads to the login page. It renders nothing for a user who is signed in.
'use client';

import type { SignInOptions } from '@townhall/gateway';
import { type ComponentPropsWithoutRef, createElement, type ReactElement } from 'react';
import { useUser } from './context.ts';

export interface SignInProps extends SignInOptions, Omit<ComponentPropsWithoutRef<'button'>, 'onClick'> {}

export function SignIn({ screen, loginHint, returnTo, children, ...rest }: SignInProps): ReactElement | null {
  const { status, endReason, signIn } = useUser();
  if (status === 'signed-in') return null;
  const signInLabel = endReason === null ? 'Sign in' : 'Sign in again';
  const label = screen === 'register' ? 'Create an account' : signInLabel;
  return createElement(
    'button',
    {
      type: 'button',
      disabled: status === 'loading',
      ...rest,
      onClick: () => void signIn({ screen, loginHint, returnTo }),
    },
    children ?? label,
  );
}
