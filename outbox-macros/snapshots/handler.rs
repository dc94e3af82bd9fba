#[allow(clippy::unused_async, reason = "a handler's form is given")]
pub async fn book(
    paid: OrderPaid,
    mailer: State<Mailer>,
    db: &mut SqliteConnection,
) -> Result<(), Error> {
    mailer.send(db, paid).await
}
#[doc(hidden)]
#[allow(non_camel_case_types, reason = "it has the function's name")]
pub struct book {}
#[automatically_derived]
impl<__DB: ::outbox::__private::Backend> ::outbox::__private::Handler<__DB> for book
where
    SqliteConnection: ::outbox::__private::MutParam<__DB>,
{
    const VTABLE: ::outbox::__private::HandlerVTable<__DB> = ::outbox::__private::HandlerVTable {
        name: "book",
        consumer: "billing",
        aliases: &["invoices", "bills"],
        types: <OrderPaid as ::outbox::__private::EventParam>::TYPES,
        batched: <OrderPaid as ::outbox::__private::EventParam>::BATCHED,
        effect: ::outbox::__private::Effect::Database,
        options: ::outbox::__private::HandlerOptions {
            retry: ::outbox::__private::Retry {
                max_attempts: ::outbox::__private::Retry::DEFAULT.max_attempts,
                base: ::outbox::__private::Retry::DEFAULT.base,
                multiplier: ::outbox::__private::Retry::DEFAULT.multiplier,
                max: ::outbox::__private::Retry::DEFAULT.max,
                jitter: ::outbox::__private::Retry::DEFAULT.jitter,
            },
            timeout: ::outbox::__private::HandlerOptions::DEFAULT.timeout,
            on_dead: ::outbox::__private::HandlerOptions::DEFAULT.on_dead,
            ordered: ::outbox::__private::HandlerOptions::DEFAULT.ordered,
            group: ::outbox::__private::HandlerOptions::DEFAULT.group,
            batch: ::outbox::__private::HandlerOptions::DEFAULT.batch,
            concurrency: ::outbox::__private::HandlerOptions::DEFAULT.concurrency,
            lease: ::outbox::__private::HandlerOptions::DEFAULT.lease,
            start_from: ::outbox::__private::HandlerOptions::DEFAULT.start_from,
            rate: ::outbox::__private::Option::Some(::outbox::__private::Rate {
                messages: 100u32,
                per: ::outbox::__private::Duration::new(60u64, 0),
            }),
            inbox: false,
        },
        site: ::outbox::__private::Site::new(
            ::outbox::__private::module_path!(),
            ::outbox::__private::file!(),
            ::outbox::__private::line!(),
        ),
        check: |states| {
            <State<Mailer> as ::outbox::__private::FromContext<__DB>>::check(states)?;
            ::outbox::__private::Result::Ok(())
        },
        call: |ctx| ::outbox::__private::Box::pin(async move {
            let __parameter0 = ::outbox::__private::take_event::<OrderPaid, __DB>(ctx)?;
            let __parameter1 = <State<
                Mailer,
            > as ::outbox::__private::FromContext<__DB>>::from_context(ctx)?;
            let __returned = book(
                    __parameter0,
                    __parameter1,
                    <SqliteConnection as ::outbox::__private::MutParam<
                        __DB,
                    >>::borrow(ctx),
                )
                .await;
            let __returned = {
                #[allow(unused_imports, reason = "one of them is needed")]
                use ::outbox::__private::{UnlessClassified as _, WhenClassified as _};
                (&::outbox::__private::Returned(&__returned))
                    .how()
                    .classified(__returned)
            };
            ::outbox::__private::HandlerReturn::into_result(__returned)
        }),
    };
}
::outbox::__private::inventory::submit! {
    ::outbox::__private::HandlerEntry::new(& < book as ::outbox::__private::Handler < _
    >> ::VTABLE)
}
