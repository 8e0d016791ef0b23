// The exports of the package.

export type { EventStream, StreamedCall } from '../../shared/src/operations.ts';
export type { CallResponse, PendingCall, PendingPage } from '../../shared/src/pending-call.ts';
export { hasType } from '../../shared/src/type-guards.ts';
export type { CallOptions, StreamCallOptions } from '../../shared/src/call-options.ts';
export type { ChatCall, ChatChunk, ChatSettings, ChatTransport } from './chat-transport.ts';
export {
  type AiMethods,
  createGatewayClient,
  type GatewayClient,
  type GatewayClientOptions,
} from './client.ts';
export { GatewayError } from './errors.ts';
export type * from './generated/error-codes.gen.ts';
export type * from './generated/types.gen.ts';
export type { Login, LoginRequest, LoginSuccess, RedirectRequest, StartedRedirect } from './login.ts';
export type { ModelSettings } from './model-call.ts';
export { createWebLogin, type SignInOptions, type WebLogin, type WebLoginOptions } from './web-login.ts';
export type { BrowserStorage, SessionEnd, WebLoginState } from './web-session.ts';
export type { ServiceCall, ServiceCallOptions } from './service-call.ts';
