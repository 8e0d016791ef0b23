// The exports of the package.

export { createWebLogin, type WebLogin, type WebLoginOptions } from '@townhall/gateway';
export {
  TownhallProvider,
  type TownhallProviderProps,
  useClient,
  type UserContext,
  useUser,
} from './context.ts';
export { SignIn, type SignInProps } from './sign-in.ts';
export { UserButton, type UserButtonProps } from './user-button.ts';
