// The door of what is measured of models and money.
export { createUpstreamWatch, type UpstreamAttempt, type UpstreamWatch } from './upstream-observer.ts';
export { watchLedger } from './ledger-observer.ts';
