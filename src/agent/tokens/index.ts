// The room that owns the agent's tokens.
export { tokenStore } from './store.ts';
export { openTokens, type Tokens } from './tokens.ts';
