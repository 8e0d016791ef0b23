// The door of what is measured of models and money.
export { createUpstreamWatch, type UpstreamAttempt, type UpstreamWatch } from './upstream-watch.ts';
export { watchLedger } from './ledger-watch.ts';
