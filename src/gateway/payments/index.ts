// The interface of the payments for other modules.
export { payments, type Payments } from './payments.ts';
export { paymentsStore, type PaymentsStore } from './store.ts';
