// The agent's tokens: authentication and administration.
export { tokenAdmin, type IssuedAgentToken, type TokenAdmin } from './admin.ts';
export { tokenStore, type ListedToken } from './store.ts';
export { openTokens, type Tokens } from './tokens.ts';
