// The room that owns the agent's tokens.
export { tokenDesk, type IssuedAgentToken, type TokenDesk } from './admin.ts';
export { tokenStore, type ListedToken } from './store.ts';
export { openTokens, type Tokens } from './tokens.ts';
