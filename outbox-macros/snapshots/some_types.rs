#[allow(clippy::unused_async, reason = "a handler's form is given")]
async fn index(batch: Vec<Envelope<AnyOrder>>) -> Result<(), Error> {
    search.index(batch).await
}
#[doc(hidden)]
#[allow(non_camel_case_types, reason = "it has the function's name")]
struct index {}
#[automatically_derived]
impl index {
    const __TYPES: ::outbox::__private::TypeSet = {
        use ::outbox::__private::member;
        ::outbox::__private::TypeSet::Any(
            &[
                ::outbox::__private::TypeSet::One(
                    member(
                        &<Vec<
                            Envelope<AnyOrder>,
                        > as ::outbox::__private::EventParam>::TYPES,
                        "order.placed",
                        "`order.placed` is none of the types of this handler's event\n\nhelp: `types` takes those of them that it handles, by their names on the wire",
                    ),
                ),
                ::outbox::__private::TypeSet::One(
                    member(
                        &<Vec<
                            Envelope<AnyOrder>,
                        > as ::outbox::__private::EventParam>::TYPES,
                        "order.paid",
                        "`order.paid` is none of the types of this handler's event\n\nhelp: `types` takes those of them that it handles, by their names on the wire",
                    ),
                ),
            ],
        )
    };
    const __BATCHED: bool = {
        use ::outbox::__private::batched;
        batched(<Vec<Envelope<AnyOrder>> as ::outbox::__private::EventParam>::BATCHED)
    };
}
#[automatically_derived]
impl<__DB: ::outbox::__private::Backend> ::outbox::__private::Handler<__DB> for index {
    const VTABLE: ::outbox::__private::HandlerVTable<__DB> = ::outbox::__private::HandlerVTable {
        name: "index",
        consumer: "index",
        aliases: &[],
        types: Self::__TYPES,
        batched: Self::__BATCHED,
        effect: ::outbox::__private::Effect::External,
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
            batch: 500u32,
            concurrency: ::outbox::__private::HandlerOptions::DEFAULT.concurrency,
            lease: ::outbox::__private::HandlerOptions::DEFAULT.lease,
            start_from: ::outbox::__private::HandlerOptions::DEFAULT.start_from,
            rate: ::outbox::__private::HandlerOptions::DEFAULT.rate,
            inbox: ::outbox::__private::HandlerOptions::DEFAULT.inbox,
        },
        site: ::outbox::__private::Site::new(
            ::outbox::__private::module_path!(),
            ::outbox::__private::file!(),
            ::outbox::__private::line!(),
        ),
        check: |_| { ::outbox::__private::Result::Ok(()) },
        call: |ctx| ::outbox::__private::Box::pin(async move {
            let __parameter0 = ::outbox::__private::take_event::<
                Vec<Envelope<AnyOrder>>,
                __DB,
            >(ctx)?;
            let __returned = index(__parameter0).await;
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
