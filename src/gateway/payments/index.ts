// The door of the payments: the factory, its store, and the types that others may name.
export { payments, type Payments, type PaymentsNeeds } from './payments.ts';
export { paymentsStore, type PaymentsStore } from './store.ts';
