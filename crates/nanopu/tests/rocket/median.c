static int in[500],out[500];
int main(void){ unsigned x=7; for(int i=0;i<500;i++){x=x*1664525u+1013904223u;in[i]=(x>>16)%1000;} for(int i=1;i<499;i++){int A=in[i-1],B=in[i],C=in[i+1]; int m; if(A<B){ if(B<C)m=B; else if(C<A)m=A; else m=C;} else { if(A<C)m=A; else if(C<B)m=B; else m=C;} out[i]=m;} return out[7]&1; }
